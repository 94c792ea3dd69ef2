"""Models by reference and frozen teachers: who scores pairs, and how their scores come to one scale."""

from trans_encoder.teachers.asking import Stored, kept_in
from trans_encoder.teachers.checks import check_scores
from trans_encoder.teachers.frozen import (
    FunctionTeacher,
    Identified,
    ScoreFile,
    ScoreFunction,
    Teacher,
    TokenTeacher,
    Vote,
    fingerprint_of,
    is_bi_encoder,
    make_teacher,
    name_functions,
)
from trans_encoder.teachers.origins import (
    UNSUPERVISED,
    Origin,
    base_model,
    card_facts,
    find_plm,
    is_hub_name,
    may_know_labels,
)
from trans_encoder.teachers.reference import ModelRef
from trans_encoder.teachers.scales import laid_on, mean_scores, pairs_to_ask, uniform_ranks
from trans_encoder.teachers.views import FEWEST_VIEWS, weigh_views
