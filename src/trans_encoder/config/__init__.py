"""The configuration of a run: its team and teachers, how encoders are trained, presets, TOML files and overrides."""

from trans_encoder.config.participants import (
    BM25,
    FUNCTION,
    LEXICAL,
    SCORE_FILES,
    TOKENS,
    VIEWS,
    MemberConfig,
    PoolingMode,
    TeacherConfig,
    free_name,
)
from trans_encoder.config.plans import Frozen, Kind, OptimisationPlan, TrainingPlan
from trans_encoder.config.presets import PAPER_METHOD, PRESETS
from trans_encoder.config.run_config import (
    EngineConfig,
    Inputs,
    JobConfig,
    RunConfig,
    Scale,
    load_config,
    make_config,
    parse_overrides,
)
