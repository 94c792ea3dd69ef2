"""The same cycle with trans-encoder's own parts."""

import tempfile
from pathlib import Path

import numpy as np

from trans_encoder.config import TrainingPlan
from trans_encoder.data.pairs import PairSet
from trans_encoder.encoders import BiEncoder, CrossEncoder, Encoder
from trans_encoder.encoders.training import TrainingOptions, train


def load_bi(name: str, plan: TrainingPlan) -> BiEncoder:
    return BiEncoder.load(name, max_tokens=plan.max_tokens)


def load_cross(name: str, plan: TrainingPlan, *, seed: int) -> CrossEncoder:
    return CrossEncoder.load(name, max_tokens=plan.max_tokens, seed=seed)


def score_bi(encoder: BiEncoder, pairs: PairSet) -> np.ndarray:
    return encoder.score(pairs)


def score_cross(encoder: CrossEncoder, pairs: PairSet) -> np.ndarray:
    return encoder.score(pairs)


def train_bi(encoder: BiEncoder, labelled: PairSet, plan: TrainingPlan, *, seed: int) -> None:
    _train(encoder, labelled, plan, seed=seed, both_orders=False)


def train_cross(encoder: CrossEncoder, labelled: PairSet, plan: TrainingPlan, *, seed: int) -> None:
    _train(encoder, labelled, plan, seed=seed, both_orders=True)


def _train(encoder: Encoder, labelled: PairSet, plan: TrainingPlan, *, seed: int, both_orders: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingOptions(folder=Path(folder), seed=seed)
        train(encoder, labelled, plan=plan, options=options, both_orders=both_orders)
