"""Probabilities without labels: what unrelated pairs score, what same-meaning pairs score, and what lies between."""

from trans_encoder.answers.probability.estimate import Probability, estimate_probability
from trans_encoder.answers.probability.evidence import (
    Differences,
    adjusted,
    are_alike,
    bounded,
    flips_of,
    is_flip,
)
