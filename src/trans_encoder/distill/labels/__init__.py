"""Pseudo-labels: the mean of the team and its teachers, on one scale, saved with where they came from (section 2.4)."""

from trans_encoder.distill.labels.pseudo_labels import (
    PseudoLabels,
    Teacher,
    Vote,
    agreed,
    anchored,
    check_scores,
    check_varied,
    fingerprint_of,
    label,
    on_scale_of,
    with_hard_pairs,
)
from trans_encoder.distill.labels.scales import uniform_ranks
from trans_encoder.distill.labels.stored import Cached, Cosines, Known, LabelShard, Sharded, cut, parts
from trans_encoder.distill.labels.teachers import (
    Consensus,
    ScoreFunction,
    assemble_teachers,
    check_coverage,
    check_models,
    embedders_of,
    name_functions,
    views_of,
)

__all__ = [
    "Cached",
    "Consensus",
    "Cosines",
    "Known",
    "LabelShard",
    "PseudoLabels",
    "ScoreFunction",
    "Sharded",
    "Teacher",
    "Vote",
    "agreed",
    "anchored",
    "assemble_teachers",
    "check_coverage",
    "check_models",
    "check_scores",
    "check_varied",
    "cut",
    "embedders_of",
    "fingerprint_of",
    "label",
    "name_functions",
    "on_scale_of",
    "parts",
    "uniform_ranks",
    "views_of",
    "with_hard_pairs",
]
