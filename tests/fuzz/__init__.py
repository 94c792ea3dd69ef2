"""Malformed inputs by the thousand: whatever is in a file, it is read or refused, and every line is accounted for.

Case N of seed S is always the same: `python -m fuzz --seed S --only N` does it again.
"""
