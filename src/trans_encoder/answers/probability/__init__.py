"""Probabilities without labels: what unrelated pairs score, what same-meaning pairs score, and what lies between."""

from trans_encoder.answers.probability.estimate import Probability, estimate_probability
from trans_encoder.answers.probability.evidence import (
    FLIPPED,
    Differences,
    flips_of,
    is_flip,
    lowered,
)

__all__ = [
    "FLIPPED",
    "Differences",
    "Probability",
    "estimate_probability",
    "flips_of",
    "is_flip",
    "lowered",
]
