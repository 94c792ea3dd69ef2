"""One cycle as published: sentence-transformers' own trainers, `encode` and `predict` with their defaults."""

import tempfile
from typing import Any

import numpy as np
import sentence_transformers as st
import torch
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

from trans_encoder.config import TrainingPlan
from trans_encoder.data.pairs import PairSet
from trans_encoder.encoders.loading import set_dropout

FLOAT32 = {"dtype": torch.float32}


def load_bi(name: str, plan: TrainingPlan) -> st.SentenceTransformer:
    model = st.SentenceTransformer(name, model_kwargs=FLOAT32)
    model.max_seq_length = plan.max_tokens
    return _with_dropout(model, plan)


def load_cross(name: str, plan: TrainingPlan, *, seed: int) -> st.CrossEncoder:
    torch.manual_seed(seed)
    return _with_dropout(st.CrossEncoder(name, num_labels=1, max_length=plan.max_tokens, model_kwargs=FLOAT32), plan)


def score_bi(model: st.SentenceTransformer, pairs: PairSet) -> np.ndarray:
    left, right = (
        model.encode(texts.to_pylist(), convert_to_tensor=True) for texts in (pairs.sentence1, pairs.sentence2)
    )
    return torch.cosine_similarity(left, right).cpu().numpy()


def score_cross(model: st.CrossEncoder, pairs: PairSet) -> np.ndarray:
    return np.asarray(model.predict(list(zip(pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist(), strict=True))))


def train_bi(model: st.SentenceTransformer, labelled: PairSet, plan: TrainingPlan, *, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = st.SentenceTransformerTrainingArguments(output_dir=folder, **_settings(plan, seed))
        st.SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=_dataset(labelled), loss=CosineSimilarityLoss(model)
        ).train()


def train_cross(model: st.CrossEncoder, labelled: PairSet, plan: TrainingPlan, *, seed: int) -> None:
    clamped = labelled.with_scores(np.clip(np.asarray(labelled.scores), 0, 1))
    swapped = PairSet.from_lists(clamped.sentence2.to_pylist(), clamped.sentence1.to_pylist(), scores=clamped.scores)
    with tempfile.TemporaryDirectory() as folder:
        arguments = CrossEncoderTrainingArguments(output_dir=folder, **_settings(plan, seed))
        CrossEncoderTrainer(
            model=model,
            args=arguments,
            train_dataset=_dataset(clamped.concat(swapped)),
            loss=BinaryCrossEntropyLoss(model),
        ).train()


def _with_dropout(model: Any, plan: TrainingPlan) -> Any:
    if plan.dropout is not None:
        set_dropout(model, plan.dropout)
    return model


def _settings(plan: TrainingPlan, seed: int) -> dict[str, Any]:
    return {
        "num_train_epochs": plan.epochs,
        "per_device_train_batch_size": plan.batch_size,
        "learning_rate": plan.learning_rate,
        "warmup_steps": plan.warmup_ratio,
        "weight_decay": plan.weight_decay,
        "seed": seed,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }


def _dataset(labelled: PairSet) -> Dataset:
    return Dataset.from_dict(
        {
            "sentence1": labelled.sentence1.to_pylist(),
            "sentence2": labelled.sentence2.to_pylist(),
            "label": np.asarray(labelled.scores, dtype=np.float32).tolist(),
        }
    )
