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
