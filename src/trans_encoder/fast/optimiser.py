"""Clipping and AdamW, whose work the threads of a training share out."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

R = TypeVar("R")


class ShareOut(Protocol):
    """Gives each thread a part of the weights, and returns what the threads made of theirs."""

    def __call__(self, weights: Iterable[Tensor], work: Callable[[list[Tensor]], R]) -> list[R]:
        """Let each thread do its part."""
        ...


class SharedOutAdamW(torch.optim.AdamW):
    """AdamW in which each thread takes the step of its own part of the weights."""

    def __init__(self, *given: Any, share_out: ShareOut, **settings: Any) -> None:
        """Take what AdamW takes, and what shares out its work."""
        super().__init__(*given, **settings)
        self._share_out = share_out

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Do one step."""
        self._share_out((weight for group in self.param_groups for weight in group["params"]), self._step_of)

    def _step_of(self, weights: list[Tensor]) -> None:
        mine, part = set(weights), object.__new__(torch.optim.AdamW)
        groups = [{**group, "params": [one for one in group["params"] if one in mine]} for group in self.param_groups]
        vars(part).update(vars(self), param_groups=groups)  # state and settings are those of the whole
        torch.optim.AdamW.step(part)


def clip_gradients(weights: Iterable[Tensor], most: float, share_out: ShareOut) -> Tensor:
    """Clip gradients by the norm of all together, and return it; torch would multiply those by one that are small."""
    trained = [weight for weight in weights if weight.grad is not None]
    norm = get_total_norm(share_out(trained, _norm))
    if not norm + 1e-6 <= most:  # so that a norm that is no number is seen in the weights, too
        share_out(trained, lambda part: clip_grads_with_norm_(part, most, norm))
    return norm


def _norm(weights: list[Tensor]) -> Tensor:
    return get_total_norm([weight.grad for weight in weights if weight.grad is not None])
