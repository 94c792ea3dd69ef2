"""In-batch distillation: a student learns its teachers' cosines of each sentence with the rest of its batch.

No pairs are needed, and every batch of n sentences teaches n(n - 1) cosines at the cost of n forward passes, so a small
student learns fast from plain text. The loss is that of sentence-transformers' `DistillKLDivLoss`, with the batch as
each sentence's list; teachers' embeddings are computed once, before the training.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from trans_encoder.data import Scores
from trans_encoder.distill.bootstrap.contrast import text_limit
from trans_encoder.distill.bootstrap.plan import ContrastPlan
from trans_encoder.encoders import BiEncoder, StudentLoss
from trans_encoder.encoders.in_batch import Similarities
from trans_encoder.encoders.tokens import Integers, Tokens
from trans_encoder.runner import Inputs

_LEFT_OUT = -1e4  # a logit whose probability is 0


class SimilarityBatches:
    """Batches of sentences, each with the teachers' similarities of every two sentences in it."""

    def __init__(self, encoder: BiEncoder, tokens: Tokens, teachers: Sequence[Scores], *, plan: ContrastPlan) -> None:
        """Learn from the teachers' embeddings of the same sentences."""
        self.module: nn.Module = StudentLoss(encoder.model, self._losses)
        self._encoder, self._tokens = encoder, tokens
        self._limit = text_limit(encoder, tokens, plan=plan)
        self._similarities = Similarities(teachers)
        self._temperature, self._teacher_temperature = plan.temperature, plan.teacher_temperature
        self.lengths = np.minimum(tokens.lengths, self._limit) + encoder.layout.extra
        self.vocabulary = np.append(tokens.distinct(), encoder.layout.ids)

    def collate(self, rows: Integers) -> dict[str, Any]:
        """Build one batch: its sentences in groups of similar length, and the teachers' logits for every two."""
        sentences = [self._tokens[row][: self._limit] for row in rows]
        targets = (self._similarities(rows) / self._teacher_temperature).astype(np.float32)
        return {**self._encoder.collate_texts(sentences), "targets": torch.from_numpy(targets)}

    def _losses(self, inputs: list[Inputs], place: Tensor, targets: Tensor) -> Tensor:
        return batch_divergence(self._encoder.runner(inputs).float()[place], targets, temperature=self._temperature)


def batch_divergence(embeddings: Tensor, targets: Tensor, *, temperature: float) -> Tensor:
    """Return each sentence's divergence of the student's distribution over its batch from the teachers'."""
    unit = functional.normalize(embeddings, dim=1)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    student = (unit @ unit.T / temperature).masked_fill(itself, _LEFT_OUT)
    teachers = targets.masked_fill(itself, _LEFT_OUT)
    divergence = functional.kl_div(student.log_softmax(1), teachers.log_softmax(1), reduction="none", log_target=True)
    return divergence.sum(dim=1)
