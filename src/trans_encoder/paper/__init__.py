"""The paper's tables and figures as declarations, run on any models at any scale."""
