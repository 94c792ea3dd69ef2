"""Global-norm clipping and AdamW, in threads."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

R = TypeVar("R")


class ShareOut(Protocol):
    """Gives each thread a part of the weights, and returns the threads' results."""

    def __call__(self, weights: Iterable[Tensor], work: Callable[[list[Tensor]], R]) -> list[R]:
        """Let each thread do its part."""
        ...


class ShardedAdamW(torch.optim.AdamW):
    """AdamW in which each thread takes the step of its own part of the weights."""

    def __init__(self, *given: Any, share_out: ShareOut, **settings: Any) -> None:
        """Take what AdamW takes, and what shares out its work."""
        super().__init__(*given, **settings)
        self._share_out = share_out

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Do one step."""
        self._share_out((weight for group in self.param_groups for weight in group["params"]), self._step_of)

    def _step_of(self, weights: list[Tensor]) -> None:
        # A view of this optimiser that has some of its weights. AdamW's own __init__ would reset state and hooks.
        mine, part = set(weights), object.__new__(torch.optim.AdamW)
        groups = [{**group, "params": [one for one in group["params"] if one in mine]} for group in self.param_groups]
        vars(part).update(vars(self), param_groups=groups)  # state and settings are those of the whole
        torch.optim.AdamW.step(part)


def clip_gradients(weights: Iterable[Tensor], most: float, share_out: ShareOut) -> Tensor:
    """Clip by global norm and return it. Unlike torch, skip the multiplication when nothing has to be clipped."""
    trained = [weight for weight in weights if weight.grad is not None]
    norm = get_total_norm(share_out(trained, _norm))
    if not norm + 1e-6 <= most:  # not `>`: a norm that is NaN must reach the weights, where it is noticed
        share_out(trained, lambda part: clip_grads_with_norm_(part, most, norm))
    return norm


def _norm(weights: list[Tensor]) -> Tensor:
    return get_total_norm([weight.grad for weight in weights if weight.grad is not None])
