"""Resumable jobs: run folders, stages, the manifest, and the workers that do the stages. Knows nothing of teachers."""

from trans_encoder.runs.claims import check_begun, check_owned, run_folder
from trans_encoder.runs.differences import flat
from trans_encoder.runs.environment import note_environment
from trans_encoder.runs.layout import LOCK, Layout, mined_pairs, mining_counts, scratch, training_record
from trans_encoder.runs.records import (
    Checkpoint,
    Chosen,
    Cuts,
    Evidence,
    HistoryLine,
    LearningRecord,
    MemberResult,
    ResultRecord,
    StartEntry,
    StartRecord,
    TrainingRecord,
    TuningRecord,
    ValidatedLine,
    read_record,
    save_trained,
    write_record,
)
from trans_encoder.runs.run import ClaimedRun, Run
from trans_encoder.runs.stages import Engine, Stage, Work, identity, short_identity
from trans_encoder.runs.trackers import check_trackers, tracked
from trans_encoder.runs.workers import make_engine

__all__ = [
    "LOCK",
    "Checkpoint",
    "Chosen",
    "ClaimedRun",
    "Cuts",
    "Engine",
    "Evidence",
    "HistoryLine",
    "Layout",
    "LearningRecord",
    "MemberResult",
    "ResultRecord",
    "Run",
    "Stage",
    "StartEntry",
    "StartRecord",
    "TrainingRecord",
    "TuningRecord",
    "ValidatedLine",
    "Work",
    "check_begun",
    "check_owned",
    "check_trackers",
    "flat",
    "identity",
    "make_engine",
    "mined_pairs",
    "mining_counts",
    "note_environment",
    "read_record",
    "run_folder",
    "save_trained",
    "scratch",
    "short_identity",
    "tracked",
    "training_record",
    "write_record",
]
