"""Distillation: labels, the team, the cycle, and the run folder that can always be continued."""
