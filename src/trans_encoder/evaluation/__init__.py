"""Measures and evaluation of models on tasks."""
