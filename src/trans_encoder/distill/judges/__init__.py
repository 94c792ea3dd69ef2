"""Judges of checkpoints, with labels and without, and the choice of a model by what they say (docs/selection.md)."""

from trans_encoder.distill.judges.judge import Comparison, DevJudge, Judge, LabelFreeJudge, hold_out
from trans_encoder.distill.judges.selection import (
    FEWEST_VIEWS,
    LEARNT,
    Candidate,
    Verdict,
    choose,
    choose_by_views,
    idle_cycles,
    verdict_of,
)

__all__ = [
    "FEWEST_VIEWS",
    "LEARNT",
    "Candidate",
    "Comparison",
    "DevJudge",
    "Judge",
    "LabelFreeJudge",
    "Verdict",
    "choose",
    "choose_by_views",
    "hold_out",
    "idle_cycles",
    "verdict_of",
]
