"""Threads: one forward pass each when scoring, one share of a batch each when training.

Threads with passes of their own rarely wait; threads that split every operator of one pass wait for each other after
each. In training a batch is cut into a fixed number of lanes, whose gradients are summed in a fixed order, so that the
same batch gives the same bits with any number of threads up to `LANES` (more only split operators further).
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trans_encoder.runner import Inputs, Lengths

R = TypeVar("R")
Pass = Callable[[nn.Module, Inputs, int], Tensor]
"""A forward pass of a replica on the group with this number."""

LANES = 4
"""Shares of a batch, and the most passes at a time: more would make them too small."""
_TOKENS_EACH = 1024
"""Tokens of a packed pass in long batches: the activations of more do not fit the cache."""
_ORDER = (0, 3, 1, 2)
"""Lanes from the first replica to the last: the largest and the smallest lane together cost what the other two do."""
_SUMS = {2: ((0, 1),), 4: ((0, 1), (2, 3), (0, 2))}
"""Pairs of replicas whose gradients are added in turn: (lane 0 + lane 3) + (lane 1 + lane 2), whatever their number."""


class Lanes:
    """Trains a model in lanes: replicas share its weights and have gradients of their own."""

    def __init__(self, model: nn.Module, run: Pass, *, threads: int, pool: ThreadPoolExecutor) -> None:
        count = LANES if threads >= LANES else 2
        self._run, self._pool = run, pool
        self.replicas = [model, *(_replica(model) for _ in range(count - 1))]
        weights = zip(*(replica.parameters() for replica in self.replicas), strict=True)
        self._copies = {weight: [weight, *others] for weight, *others in weights}
        self.in_order = False
        """Whether replicas take turns, for a model that draws from the one generator that all threads share."""

    def __call__(self, groups: Sequence[Inputs]) -> Tensor:
        """Return the outputs of all groups in order, with gradients."""
        # Any weight that is trained connects the lanes to the graph; word embeddings, the first, may be frozen.
        trained = next((weight for weight in self._copies if weight.requires_grad), None)
        result: Tensor = _InLanes.apply(trained, self, groups)  # type: ignore[no-untyped-call]
        return result

    def forward(self, groups: Sequence[Inputs]) -> list[Tensor]:
        """Run every group on the replica of its lane; return the outputs with each replica's own graph."""
        outputs: list[Tensor] = [torch.empty(0)] * len(groups)
        lanes = _lanes(groups)

        def work(replica: int) -> None:
            with torch.enable_grad():
                for lane in self._lanes_of(replica):
                    for place in lanes[lane]:
                        outputs[place] = self._run(self.replicas[replica], groups[place], place)

        self._together(work)
        return outputs

    def backward(self, groups: Sequence[Inputs], outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Compute each lane's gradients, and sum them into the model's own."""
        lanes = _lanes(groups)

        def work(replica: int) -> None:
            for lane in self._lanes_of(replica):
                if lanes[lane]:  # one call a lane: then autograd adds each lane's gradient as a whole
                    mine = [place for place in lanes[lane] if outputs[place].requires_grad]
                    torch.autograd.backward([outputs[place] for place in mine], [gradients[place] for place in mine])

        self._together(work)
        self.share_out(self._copies, self._add_up)

    def share_out(self, weights: Iterable[Tensor], work: Callable[[list[Tensor]], R]) -> list[R]:
        """Let threads work on parts of the weights of about equal size; the parts do not depend on the threads."""
        each = list(weights)
        parts = balanced([weight.numel() for weight in each], LANES)
        return list(self._pool.map(work, ([each[place] for place in part] for part in parts)))

    def _add_up(self, weights: Iterable[Tensor]) -> None:
        for weight in weights:
            copies = self._copies[weight]
            for left, right in ((copies[first], copies[second]) for first, second in _SUMS[len(copies)]):
                if right.grad is not None:
                    left.grad = right.grad if left.grad is None else left.grad.add_(right.grad)
                    right.grad = None

    def _lanes_of(self, replica: int) -> tuple[int, ...]:
        each = LANES // len(self.replicas)
        return _ORDER[replica * each : (replica + 1) * each]

    def _together(self, work: Callable[[int], None]) -> None:
        numbers = range(len(self.replicas))
        if self.in_order:
            for number in numbers:
                self._pool.submit(work, number).result()
        else:
            list(self._pool.map(work, numbers))


class _InLanes(torch.autograd.Function):
    """All groups as one node of the graph; each replica keeps the graph of its own groups."""

    @staticmethod
    def forward(ctx: Any, _weight: Tensor | None, lanes: Lanes, groups: Sequence[Inputs]) -> Tensor:
        ctx.lanes, ctx.groups, ctx.outputs = lanes, groups, lanes.forward(groups)
        return torch.cat([output.detach() for output in ctx.outputs])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        # The graphs below are the replicas' own: only this node is known to the caller's graph.
        sizes = [len(output) for output in ctx.outputs]
        ctx.lanes.backward(ctx.groups, ctx.outputs, torch.split(gradient, sizes))
        return None, None, None


def _lanes(groups: Sequence[Inputs]) -> list[list[int]]:
    """Assign groups to lanes by their tokens."""
    return balanced([int(group["attention_mask"].sum()) for group in groups], LANES)


def balanced(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Distribute things over `count` lists of about equal total size: largest first, each to the smallest list."""
    totals = [0] * count
    lists: list[list[int]] = [[] for _ in totals]
    for place in sorted(range(len(sizes)), key=lambda place: (-sizes[place], place)):
        least = totals.index(min(totals))
        totals[least] += sizes[place]
        lists[least].append(place)
    return lists


def split_packed(lengths: Lengths) -> list[NDArray[np.intp]]:
    """Split a batch, sorted by length, where its tokens divide evenly: equal lengths stay together for attention."""
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    count = max(int(ends[-1]) // _TOKENS_EACH // LANES, 1) * LANES
    middles = ends - lengths[order] / 2
    cuts = np.searchsorted(middles, ends[-1] / count * np.arange(1, count))
    return [group for group in np.split(order, cuts) if len(group)]


@contextmanager
def thread_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads that share the cores.

    The calling thread has one core meanwhile: its OpenMP workers would spin for milliseconds after each of its
    operators, on the cores of the pool.
    """
    cores = torch.get_num_threads()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(max(cores // threads, 1),)) as pool:
        try:
            torch.set_num_threads(1)
            yield pool
        finally:
            torch.set_num_threads(cores)


def _replica(model: Any) -> nn.Module:
    """Return a model that shares another's weights and has gradients of its own."""
    known = {id(model.tokenizer): model.tokenizer}
    replica: nn.Module = copy.deepcopy(model, known)
    for weight, other in zip(model.parameters(), replica.parameters(), strict=True):
        other.data = weight.data  # the same memory: an optimiser step on the model updates every replica
        other.grad = None
    return replica.train()
