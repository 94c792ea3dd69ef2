"""Answers: which rows mean the same, and which are about a text."""
