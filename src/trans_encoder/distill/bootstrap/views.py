"""Two views of one sentence beyond dropout (Mirror-BERT): a masked span, and whole attention heads dropped."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trans_encoder.encoders import BiEncoder
from trans_encoder.errors import ConfigurationError

TokenIds = NDArray[np.int32]


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
