"""The contrastive objective (Eq. 1): a sentence's two views are each other's nearest in the batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from trans_encoder.distill.bootstrap.plan import ContrastPlan
from trans_encoder.encoders import BiEncoder, StudentLoss, covering
from trans_encoder.encoders.tokens import Integers, PairTokens, Tokens
from trans_encoder.errors import ConfigurationError
from trans_encoder.runner import Inputs

TokenIds = NDArray[np.int32]


class Contrast:
    """Pairs of positives, each a sentence with itself or with another, against the rest of their batch."""

    def __init__(self, encoder: BiEncoder, positives: PairTokens, *, plan: ContrastPlan, seed: int) -> None:
        """Contrast these positives; the seed decides the masked spans."""
        self.module: nn.Module = StudentLoss(encoder.model, self._losses)
        self._temperature = plan.temperature
        self._encoder, self._positives, self._seed = encoder, positives, seed
        self._limit = text_limit(encoder, positives.tokens, plan=plan)
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
        return {**self._encoder.collate_texts(left + right), "duplicates": torch.from_numpy(known)}

    def _losses(self, inputs: list[Inputs], place: Tensor, duplicates: Tensor) -> Tensor:
        left, right = self._encoder.runner(inputs).float()[place].chunk(2)
        return info_nce(left, right, temperature=self._temperature, duplicates=duplicates)

    def _ids(self, sentence: int) -> TokenIds:
        return self._positives.tokens[sentence][: self._limit]


def text_limit(encoder: BiEncoder, tokens: Tokens, *, plan: ContrastPlan) -> int:
    """Return how many tokens of a text are learnt from, special ones not counted: as given, else what covers most."""
    extra = encoder.layout.extra
    return (plan.given_tokens or covering(tokens.whole + extra, limit=encoder.token_limit)) - extra


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


def mask_span(ids: TokenIds, *, span: int, mask_id: int | None, rng: np.random.Generator) -> TokenIds:
    """Put one mask in the place of `span` adjacent tokens, fewer where half the sentence is shorter.

    Without a mask token the span is left out.
    """
    length = min(span, len(ids) // 2)
    if length == 0:
        return ids
    start = int(rng.integers(len(ids) - length + 1))
    mask = [] if mask_id is None else [mask_id]
    return np.concatenate([ids[:start], np.asarray(mask, dtype=np.int32), ids[start + length :]])


def has_dropout(encoder: BiEncoder) -> bool:
    """Say whether two passes of a sentence differ in training."""
    return any(isinstance(module, nn.Dropout) and module.p > 0 for module in encoder.model.modules())


@contextmanager
def dropped_heads(encoder: BiEncoder, *, probability: float) -> Iterator[None]:
    """Inside this block, training drops whole attention heads of each sentence in place of single activations.

    It acts where the joined heads enter their output projection, so any attention implementation will do.
    """
    body: Any = encoder.model[0].auto_model
    heads = int(body.config.num_attention_heads)
    projections = _head_projections(body)
    if not projections:
        raise ConfigurationError(
            f"no attention heads were found in {encoder.name} ({type(body).__name__}); choose simcse"
        )

    def drop(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not module.training:
            return None
        return (_without_heads(arguments[0], heads=heads, probability=probability), *arguments[1:])

    dropouts = {module: module.p for module in body.modules() if isinstance(module, nn.Dropout)}
    hooks = [projection.register_forward_pre_hook(drop) for projection in projections]
    for module in dropouts:
        module.p = 0.0
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module, rate in dropouts.items():
            module.p = rate


def _head_projections(body: nn.Module) -> list[nn.Module]:
    """Return each attention block's last linear layer: the one that takes the joined heads."""
    found: dict[nn.Module, None] = {}
    for name, block in body.named_modules():
        if name.rpartition(".")[2] in ("attention", "attn"):
            linear = [module for module in block.modules() if isinstance(module, nn.Linear)]
            found.update(dict.fromkeys(linear[-1:]))
    return list(found)


def _without_heads(joined: Tensor, *, heads: int, probability: float) -> Tensor:
    """Zero random heads of each sentence and scale up those that are left; one is always left."""
    noise = torch.rand(joined.shape[0], heads, device=joined.device)
    kept = (noise >= probability) | (noise == noise.amax(dim=1, keepdim=True))
    scale = kept * (heads / kept.sum(dim=1, keepdim=True))
    shape = (joined.shape[0], *[1] * (joined.dim() - 2), heads, 1)
    separate = joined.reshape(*joined.shape[:-1], heads, -1)
    return (separate * scale.to(joined.dtype).view(shape)).reshape(joined.shape)
