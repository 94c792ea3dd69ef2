"""Runs beyond one process, for real: two ranks under torchrun, a Ray cluster of two nodes, workers side by side."""
