"""Faults put into real runs: killed processes, full or vanished storage, damaged files; each run must end the same."""
