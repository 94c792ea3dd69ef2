"""Training of either kind of encoder: one trainer, exact continuation, the best checkpoint kept."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import pyarrow.compute as pc
import torch
from torch import Tensor, nn

from trans_encoder.config import OptimisationPlan, TrainingPlan
from trans_encoder.data import PairSet
from trans_encoder.encoders.bi import BiEncoder
from trans_encoder.encoders.encoder import Encoder
from trans_encoder.encoders.in_batch import InBatch
from trans_encoder.encoders.lengths import count_cuts, fitting_length
from trans_encoder.encoders.loading import Precision, set_dropout
from trans_encoder.encoders.losses import LOSSES, TAKES_LOGITS
from trans_encoder.encoders.tokens import Integers
from trans_encoder.encoders.trainer import StageTrainer
from trans_encoder.errors import DataError
from trans_encoder.runs import Checkpoint, Cuts

Judge = Callable[[Any], float]


class Objective(Protocol):
    """What the trainer minimises: examples of known length, batches of them, and a module that gives a batch's loss."""

    module: nn.Module
    """Takes a batch as keyword arguments and returns each example's loss."""
    lengths: Integers
    """Tokens of each example, for batches of similar length."""
    vocabulary: Integers
    """Every token that a batch may have."""

    def collate(self, rows: Integers) -> dict[str, Any]:
        """Build the batch of the given examples."""
        ...


class StudentLoss(nn.Module):
    """A student and its loss as one module, so that data-parallel wrappers see a whole forward pass."""

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor]) -> None:
        """Take a model and a function from a batch to each example's loss."""
        super().__init__()
        self.model = model
        self._loss = loss

    def forward(self, **batch: Any) -> Tensor:
        """Return each example's loss."""
        return self._loss(**batch)


@dataclass(frozen=True)
class TrainingOptions:
    """Where and how a training runs; nothing here changes what the plan asks for."""

    folder: Path
    """Checkpoints live here while the training runs; the same call continues from the last one."""
    seed: int = 0
    """Decides the order of the batches and the dropout."""
    judge: Judge | None = None
    """Scores the student during training; the best checkpoint is kept. Without it the last one is.

    On a CPU the student scores on all cores; whatever else the judge computes in torch has one core.
    """
    keep_last: bool = False
    """Keep the last checkpoint rather than the one with the best score."""
    precision: Precision = "auto"
    """Chosen by the device's capability unless given."""
    trackers: tuple[str, ...] = ()
    """Names that transformers' report_to knows, such as tensorboard or wandb."""
    made_from: str = ""
    """A hash of what the training is made from; checkpoints of another are not continued."""
    description: str = "training"
    """The name on the progress bar."""


@dataclass(frozen=True)
class Training:
    """The result of a training: the encoder with its best (or last) weights, and its history."""

    encoder: Encoder
    history: list[Checkpoint] = field(default_factory=list)
    best_step: int = 0
    best_score: float | None = None
    cuts: Cuts | None = None
    """How many inputs it learnt from were truncated, and at which length."""


def train(
    student: Encoder,
    labelled: PairSet,
    *,
    plan: TrainingPlan,
    options: TrainingOptions,
    both_orders: bool = False,
    in_batch: InBatch | None = None,
) -> Training:
    """Train the student on the labels of `labelled` (Eq. 2 or 3) and return it with its best weights.

    With `both_orders` every pair is seen twice, once swapped, with one label. A bi-encoder can learn the cosine of
    every two sentences of a batch as well (`in_batch`).
    """
    if labelled.scores is None or len(labelled) == 0:
        raise DataError("training needs pairs with labels; got none. Label the pairs first (trans-encoder label)")
    if in_batch is None:
        objective = Distillation(student, labelled, plan=plan, both_orders=both_orders)
    else:
        objective = InBatchDistillation(cast(BiEncoder, student), labelled, plan=plan, in_batch=in_batch)
    training = fit(student, objective, plan=plan, options=options)
    if student.kind == "cross":
        # A re-ranker may come with another activation; wherever it is loaded now, it must give what it was taught.
        student.model.activation_fn = nn.Sigmoid()
    return replace(training, cuts=count_cuts(student, labelled, max_tokens=objective.max_tokens))


def fit(student: Encoder, objective: Objective, *, plan: OptimisationPlan, options: TrainingOptions) -> Training:
    """Minimise an objective over the student's weights; continue from a checkpoint in the options' folder if any."""
    trainer = StageTrainer(student, objective, plan=plan, options=options)
    trainer.run()
    return Training(student, trainer.kept.history, trainer.kept.best_step, trainer.kept.best_score)


class Distillation:
    """The distillation objective: reproduce the teachers' score of each pair."""

    def __init__(self, student: Encoder, labelled: PairSet, *, plan: TrainingPlan, both_orders: bool) -> None:
        """Tokenise the pairs; both orders of a pair share its tokens and its label."""
        # Only what is learnt from is cut. The student keeps its own length for judging, and is saved with it, unless
        # it learns from longer inputs than that.
        self.max_tokens = plan.given_tokens or fitting_length(student, labelled)
        if self.max_tokens > student.max_tokens:
            student.model.max_seq_length = self.max_tokens
        if plan.dropout is not None:
            set_dropout(student.model, plan.dropout)
        self.module: nn.Module = StudentLoss(student.model, self._losses)
        self._student, self._loss = student, plan.loss
        pairs = student.tokeniser(labelled, max_tokens=self.max_tokens)
        labels = np.asarray(labelled.scores, dtype=np.float32)
        if plan.loss == "bce" and plan.negatives == "clamp":
            labels = labels.clip(0, 1)
        self._pairs = pairs.both_orders() if both_orders else pairs
        self._labels = torch.from_numpy(np.tile(labels, 2) if both_orders else labels)
        self.lengths = student.lengths(self._pairs, max_tokens=self.max_tokens)
        self.vocabulary = np.append(pairs.tokens.distinct(), student.layout.ids)

    def collate(self, rows: Integers) -> dict[str, Any]:
        """Build a batch of pairs with their labels."""
        batch = self._student.collate(self._pairs, rows, max_tokens=self.max_tokens)
        return {**batch, "labels": self._labels[torch.from_numpy(rows)]}

    def _losses(self, *, labels: Tensor, **batch: Any) -> Tensor:
        outputs = self._student.outputs if self._loss in TAKES_LOGITS else self._student.score_batch
        return LOSSES[self._loss](outputs(batch), labels)


class InBatchDistillation(Distillation):
    """The same for a bi-encoder, whose cosines of all other sentences of a batch have targets as well."""

    def __init__(self, student: BiEncoder, labelled: PairSet, *, plan: TrainingPlan, in_batch: InBatch) -> None:
        """Find the teachers' embedding of each sentence of the pairs."""
        super().__init__(student, labelled, plan=plan, both_orders=False)
        self._unit_vectors, self._in_batch = student.unit_vectors, in_batch
        self._embedded = np.empty(int(self._pairs.index.max()) + 1, dtype=np.int64)
        for side, sentences in enumerate((labelled.sentence1, labelled.sentence2)):
            places = pc.index_in(sentences, value_set=in_batch.sentences).to_numpy()
            self._embedded[self._pairs.index[:, side]] = places

    def collate(self, rows: Integers) -> dict[str, Any]:
        """Build a batch of pairs with their labels and the targets of every two of its sentences."""
        batch = super().collate(rows)
        # Where each of the batch's embeddings comes from, in their order.
        _, first = np.unique(batch["place"].numpy(), return_index=True)
        embedded = self._embedded[self._pairs.index[rows].reshape(-1)[first]]
        return {**batch, "targets": torch.from_numpy(self._in_batch(embedded))}

    def _losses(self, *, labels: Tensor, **batch: Any) -> Tensor:
        targets = batch.pop("targets")
        unit = self._unit_vectors(batch)
        left, right = batch["place"].unbind(1)
        cosines = unit @ unit.T
        errors = (cosines - targets).square().fill_diagonal_(0)
        each = errors.sum(dim=1) / max(len(unit) - 1, 1)
        others = (each[left] + each[right]) / 2
        losses: Tensor = LOSSES[self._loss](cosines[left, right], labels) + self._in_batch.weight * others
        return losses
