"""Random streams for dropout: each forward pass draws from a generator of its own.

torch's dropout draws from one generator that all threads share, so what a pass drops would depend on the threads'
timing. Here every pass has a stream that is derived from (seed, step, pass), so that a training is the same however
many threads it has, and continues exactly from a checkpoint without saving any generator's state.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class Stream(TorchFunctionMode):
    """Inside this block, this thread's dropout and other draws come from a generator seeded with `key`.

    A TorchFunctionMode rather than patched modules: many models keep a plain rate and call `functional.dropout` or
    hand it to `scaled_dot_product_attention`, where no module could be replaced. Its price is some microseconds for
    each operator, so it is used only for models that draw.
    """

    def __init__(self, *key: int) -> None:
        super().__init__()
        (seed,) = np.random.SeedSequence(key).generate_state(1, np.uint64)
        self._generator = torch.Generator().manual_seed(int(seed))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Draw from the stream where `func` draws."""
        kwargs = kwargs or {}
        replacement = _REPLACEMENTS.get(func)
        if replacement is not None:
            return replacement(self._generator, *args, **kwargs)
        if func in _DRAWS and kwargs.get("generator") is None:
            kwargs = {**kwargs, "generator": self._generator}
        return func(*args, **kwargs)


def _dropout(
    generator: torch.Generator,
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    if not training or p == 0.0 or input.numel() == 0:
        return input
    kept = torch.empty_like(input).bernoulli_(1 - p, generator=generator)
    scaled = kept.div_(1 - p) if p < 1 else kept
    return input.mul_(scaled) if inplace else input * scaled


def _attention(
    generator: torch.Generator,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attend as torch does; with dropout on a CPU, torch computes these same steps, too."""
    if dropout_p == 0.0 or is_causal or enable_gqa:  # the last two: not what encoders do, so left to torch's generator
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return _dropout(generator, scores.softmax(dim=-1), dropout_p) @ value


_REPLACEMENTS: dict[Any, Callable[..., Tensor]] = {
    functional.dropout: _dropout,
    functional.scaled_dot_product_attention: _attention,
}
_DRAWS = {torch.rand, torch.randn, torch.randint, torch.randperm, torch.bernoulli, torch.normal, torch.multinomial}
_DRAWS |= {getattr(Tensor, name) for name in ("bernoulli_", "uniform_", "normal_", "random_", "exponential_")}


def draws(run: Callable[[], Tensor]) -> bool:
    """Find by experiment whether a computation draws random numbers other than from a `Stream`: run it twice."""
    with _global_state_kept():
        results = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            results.append(run())
    return not torch.equal(*results)


@contextmanager
def _global_state_kept() -> Iterator[None]:
    """Put the states of the global generators back after this block."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
