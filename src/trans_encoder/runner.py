"""The plain runner: one forward pass after another, by transformers' own code. It specifies what a runner does."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

T = TypeVar("T")
Inputs = dict[str, Any]
"""What a model takes: token ids, attention mask and, where it knows them, token types, as tensors with a row for each
input; and what holds for all of them, such as the length of their prompt.
"""
Lengths = NDArray[np.int64]
"""Numbers of tokens, one for each input."""
Forward = Callable[[Any, Inputs], Tensor]
"""One forward pass of a model that returns one row for each input."""
Optimiser = tuple[type[torch.optim.Optimizer], dict[str, Any]]
"""The class of an optimiser and its settings."""

_PADDING_TOLERATED = 0.10


class TrainingSession:
    """What a runner lends to a trainer while a training lasts; the plain runner changes nothing."""

    def begin_step(self, step: int) -> None:
        """Note the number of the step that comes next."""

    def optimiser(self, chosen: Optimiser) -> Optimiser:
        """Return the optimiser to use in place of the one chosen."""
        return chosen

    def clip(self, weights: Iterable[nn.Parameter], most: float) -> Tensor | None:  # noqa: ARG002
        """Clip gradients by global norm and return it, or return None to leave that to the trainer."""
        return None


class Runner(Protocol):
    """Takes a model through batches."""

    def split(self, lengths: Lengths) -> list[NDArray[np.intp]]:
        """Split the inputs of a batch into groups, one forward pass each; return their places."""

    def __call__(self, groups: Sequence[Inputs]) -> Tensor:
        """Return the model's outputs of all groups in order, with gradients."""

    def predict(self, batches: Iterable[T], inputs: Callable[[T], Inputs]) -> Iterator[tuple[T, Tensor]]:
        """Yield each batch with the model's outputs of its inputs, in order, on the CPU, without gradients."""

    def training(self, tokens: Lengths, *, seed: int, distributed: bool) -> AbstractContextManager[TrainingSession]:
        """Train inside this block on batches of these token ids; `distributed`: others train the same model."""


class PlainRunner:
    """Runs every pass as transformers does it."""

    def __init__(self, model: Any, forward: Forward) -> None:
        self.model, self.forward = model, forward

    def split(self, lengths: Lengths) -> list[NDArray[np.intp]]:
        """Split a batch into groups of similar length where that saves padding."""
        return split_by_length(lengths)

    def __call__(self, groups: Sequence[Inputs]) -> Tensor:
        """Return the outputs of all groups, with gradients."""
        return torch.cat([self.forward(self.model, group) for group in groups])

    def predict(self, batches: Iterable[T], inputs: Callable[[T], Inputs]) -> Iterator[tuple[T, Tensor]]:
        """Yield each batch with its outputs."""
        for batch in batches:
            with torch.inference_mode():
                yield batch, self.forward(self.model, inputs(batch)).float().cpu()

    @contextmanager
    def training(self, tokens: Lengths, *, seed: int, distributed: bool) -> Iterator[TrainingSession]:  # noqa: ARG002
        """Change nothing."""
        yield TrainingSession()


def in_order(
    pool: Executor, work: Callable[[T], tuple[T, Tensor]], batches: Iterable[T], *, ahead: int
) -> Iterator[tuple[T, Tensor]]:
    """Yield the results of all batches in order; threads work `ahead` batches ahead."""
    waiting: deque[Future[tuple[T, Tensor]]] = deque()
    try:
        for batch in batches:
            waiting.append(pool.submit(work, batch))
            if len(waiting) == ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for left in waiting:
            left.cancel()


def split_by_length(lengths: Lengths, *, at_least: int = 1) -> list[NDArray[np.intp]]:
    """Split the inputs of a batch into few groups of similar length, where that saves enough padding."""
    # Few large passes are faster than many small ones, so split only until little padding is left.
    order = np.argsort(lengths, kind="stable")
    useful = int(lengths.sum())
    for parts in (at_least, *(parts for parts in (2, 4, 8) if parts > at_least)):
        groups = [group for group in np.array_split(order, parts) if len(group)]
        computed = sum(len(group) * int(lengths[group].max()) for group in groups)
        if computed <= useful * (1 + _PADDING_TOLERATED) or len(groups) < parts:
            break
    return groups
