"""The contrastive objective (Eq. 1): a sentence's two views are each other's nearest in the batch."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from trans_encoder.distill.bootstrap.plan import ContrastPlan
from trans_encoder.distill.bootstrap.views import TokenIds, mask_span
from trans_encoder.encoders import BiEncoder, covering
from trans_encoder.encoders.batching import assemble
from trans_encoder.encoders.tokens import Integers, PairTokens
from trans_encoder.runner import Inputs


class Contrast:
    """Pairs of positives, each a sentence with itself or with another, against the rest of their batch."""

    def __init__(self, encoder: BiEncoder, positives: PairTokens, *, plan: ContrastPlan, seed: int) -> None:
        """Contrast these positives; the seed decides the masked spans."""
        self.module: nn.Module = _Contraster(encoder, temperature=plan.temperature)
        self._layout, self._runner = encoder.layout, encoder.runner
        whole = positives.tokens.whole + encoder.layout.extra
        self._limit = (plan.given_tokens or covering(whole, limit=encoder.token_limit)) - encoder.layout.extra
        self._positives, self._seed = positives, seed
        self._span = plan.span_tokens if plan.objective == "mirror" else 0
        self._mask_id = encoder.model.tokenizer.mask_token_id
        lengths = np.minimum(positives.tokens.lengths, self._limit) + encoder.layout.extra
        self.lengths = lengths[positives.index].sum(axis=1)
        masks = [] if self._mask_id is None else [self._mask_id]
        self.vocabulary = np.append(positives.tokens.distinct(), encoder.layout.ids + masks)

    def collate(self, rows: Integers) -> dict[str, Any]:
        """Build one batch: both views of all its sentences in one pass, in groups of similar length."""
        left, right = ([self._ids(sentence) for sentence in side] for side in self._positives.index[rows].T)
        known = duplicates(left, right)
        if self._span:
            # Drawn from the batch itself, so that a continued run masks the same spans.
            rng = np.random.default_rng([self._seed, *rows.tolist()])
            right = [mask_span(ids, span=self._span, mask_id=self._mask_id, rng=rng) for ids in right]
        views = left + right
        groups = self._runner.split(np.array([len(ids) for ids in views]) + self._layout.extra)
        place = np.empty(len(views), dtype=np.int64)
        place[np.concatenate(groups)] = np.arange(len(views))
        return {
            "inputs": [assemble([[views[i]] for i in group], self._layout) for group in groups],
            "place": torch.from_numpy(place),
            "duplicates": torch.from_numpy(known),
        }

    def _ids(self, sentence: int) -> TokenIds:
        return self._positives.tokens[sentence][: self._limit]


def duplicates(left: list[TokenIds], right: list[TokenIds]) -> NDArray[np.bool_]:
    """Mark false negatives: the right sentence of a pair that shares a sentence with the left one's pair.

    A pair's own right sentence is its positive and never marked.
    """
    numbers: dict[bytes, int] = {}

    def numbered(side: list[TokenIds]) -> Integers:
        return np.array([numbers.setdefault(ids.tobytes(), len(numbers)) for ids in side])

    first, second = numbered(left), numbered(right)
    same = (first[:, None] == first) | (first[:, None] == second) | (second[:, None] == second)
    return np.asarray(same & ~np.eye(len(left), dtype=bool))


def info_nce(left: Tensor, right: Tensor, *, temperature: float, duplicates: Tensor) -> Tensor:
    """Return each left embedding's loss: how far its own right one is from being the nearest by cosine (Eq. 1)."""
    cosines = functional.normalize(left, dim=1) @ functional.normalize(right, dim=1).T
    logits = (cosines / temperature).masked_fill(duplicates, -torch.inf)
    return functional.cross_entropy(logits, torch.arange(len(logits), device=logits.device), reduction="none")


class _Contraster(nn.Module):
    """The encoder and its loss as one module, so that data-parallel wrappers see a whole forward pass."""

    def __init__(self, encoder: BiEncoder, *, temperature: float) -> None:
        super().__init__()
        self.model = encoder.model
        self._runner = encoder.runner
        self._temperature = temperature

    def forward(self, inputs: list[Inputs], place: Tensor, duplicates: Tensor) -> Tensor:
        left, right = self._runner(inputs).float()[place].chunk(2)
        return info_nce(left, right, temperature=self._temperature, duplicates=duplicates)
