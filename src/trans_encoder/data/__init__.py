"""Data in: pairs of sentences, tasks with gold scores, and raw text."""
