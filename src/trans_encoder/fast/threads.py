"""The passes of a batch through a model: one after the other or, on a CPU with several cores, side by side.

Threads that each have a pass of their own seldom wait; threads that share out every operator of one pass wait for each
other after each. In training every thread has gradients of its own, which are added up in a fixed order, so that the
same batch always gives the same bits.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trans_encoder.fast.last_layer import can_read_first_token_only, first_token_only, reads_first_token
from trans_encoder.fast.matmul import Layouts, frozen
from trans_encoder.fast.packing import can_be_packed, packed
from trans_encoder.fast.plain import Forward, Inputs, Lengths, split_by_length

T = TypeVar("T")
R = TypeVar("R")

_MOST = 4
"""Passes at a time: more would make a batch's groups too small. Further cores work within each pass."""
_AHEAD = 2 * _MOST
"""Batches that are scored before the first of them is taken: what they gave stays in memory until then."""
_TOKENS_EACH = 1024
"""Tokens of a packed pass where there are many: the activations of more leave the cache."""
_GROUPS_EACH = 2
"""Groups of a padded batch for each thread, so that long and short ones can be shared out evenly."""


class Passes:
    """Takes a model through groups of inputs; `forward` says what is wanted of one pass."""

    def __init__(self, model: Any, forward: Forward) -> None:
        """Do one pass after the other until asked otherwise."""
        self._model, self._forward = model, forward
        self._packed = can_be_packed(model)
        can_read_first_token_only(model)
        self._replicas: list[nn.Module] = [model]
        self._twins: dict[Tensor, list[nn.Parameter]] = {}  # of each weight those in the other replicas
        self._pool: ThreadPoolExecutor | None = None

    def split(self, lengths: Lengths) -> list[NDArray[np.intp]]:
        """Split the inputs of a batch into groups, a pass for each, by their lengths."""
        threads = len(self._replicas)
        if self._packed and self._model.device.type == "cpu":
            count = max(int(lengths.sum()) // _TOKENS_EACH // threads, 1) * threads
            return [np.array(group) for group in _dealt(lengths.tolist(), min(count, len(lengths)))]
        return split_by_length(lengths, at_least=1 if threads == 1 else _GROUPS_EACH * threads)

    @contextmanager
    def side_by_side(self) -> Iterator[None]:
        """Train inside this block with several passes at a time, where that changes nothing but the order of sums.

        Threads would draw their dropout from one stream, in any order, so a model with dropout is left as it is.
        Whatever else this thread computes inside the block has one core: see `_threads`.
        """
        count = _workers(self._model)
        if count == 1 or _draws(self._model):
            yield
            return
        try:
            with _threads(count) as self._pool:
                self._replicas = [self._model, *(_replica(self._model) for _ in range(count - 1))]
                weights = zip(*(replica.parameters() for replica in self._replicas), strict=True)
                self._twins = {weight: twins for weight, *twins in weights}
                yield
        finally:
            self._replicas, self._twins, self._pool = [self._model], {}, None

    def __call__(self, groups: Sequence[Inputs]) -> Tensor:
        """Return what the model says of all groups, with gradients."""
        if self._pool is None or len(groups) == 1:
            return torch.cat([self._pass(self._model, group) for group in groups])
        result: Tensor = _SideBySide.apply(next(self._model.parameters()), self, groups)  # type: ignore[no-untyped-call]
        return result

    def predict(self, batches: Iterable[T], inputs: Callable[[T], Inputs]) -> Iterator[tuple[T, Tensor]]:
        """Yield each batch with what the model says of its inputs, in order, without gradients."""
        layouts: Layouts = {}

        def predicted(batch: T) -> tuple[T, Tensor]:
            # The modes belong to a thread, so each must be told.
            with torch.inference_mode(), frozen(layouts):
                return batch, self._pass(self._model, inputs(batch)).float().cpu()

        count = _workers(self._model)
        if torch.is_autocast_enabled("cpu") or (count == 1 and self._pool is None):
            yield from map(predicted, batches)
            return
        with _threads(count) if self._pool is None else nullcontext(self._pool) as pool:
            ahead: deque[Future[tuple[T, Tensor]]] = deque()
            try:
                for batch in batches:
                    ahead.append(pool.submit(predicted, batch))
                    if len(ahead) == _AHEAD:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for left in ahead:
                    left.cancel()

    def _pass(self, model: nn.Module, inputs: Inputs) -> Tensor:
        with first_token_only(reads_first_token(model)), packed(self._model.device.type == "cpu"):
            return self._forward(model, inputs)

    def forward(self, groups: Sequence[Inputs]) -> list[Tensor]:
        """Take each thread's model through its groups; return what each group gave, with gradients."""
        outputs: list[Tensor] = [torch.empty(0)] * len(groups)
        shares = self._shares(groups)

        def work(thread: int) -> None:
            for place in shares[thread]:
                outputs[place] = self._pass(self._replicas[thread], groups[place])

        self._together(work)
        return outputs

    def backward(self, groups: Sequence[Inputs], outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Find the gradients of each thread's model, and add them up in the first, each weight's in one order."""
        shares = self._shares(groups)

        def work(thread: int) -> None:
            mine = shares[thread]
            if mine:
                torch.autograd.backward([outputs[place] for place in mine], [gradients[place] for place in mine])

        def add(weights: Iterable[Tensor]) -> None:
            for weight in weights:
                for twin in self._twins[weight]:
                    if twin.grad is not None:
                        weight.grad = twin.grad if weight.grad is None else weight.grad.add_(twin.grad)
                        twin.grad = None

        self._together(work)
        self.share_out(self._twins, add)

    def share_out(self, weights: Iterable[Tensor], work: Callable[[list[Tensor]], R]) -> list[R]:
        """Let each thread of a training work on a part of the weights, all parts of about one size."""
        each = list(weights)
        if self._pool is None:
            return [work(each)]
        shares = _dealt([weight.numel() for weight in each], len(self._replicas))
        return list(self._pool.map(work, ([each[place] for place in share] for share in shares)))

    def _shares(self, groups: Sequence[Inputs]) -> list[list[int]]:
        """Return which groups each thread has, by what they cost: their tokens and, if they are padded, the padding."""
        masks = [group["attention_mask"] for group in groups]
        sizes = [int(mask.sum()) if self._packed else mask.numel() for mask in masks]
        return _dealt(sizes, len(self._replicas))

    def _together(self, work: Callable[[int], None]) -> None:
        assert self._pool is not None
        list(self._pool.map(work, range(len(self._replicas))))


class _SideBySide(torch.autograd.Function):
    """All groups as one step of the graph; each thread keeps the graph of its own."""

    @staticmethod
    def forward(ctx: Any, _weight: Tensor, passes: Passes, groups: Sequence[Inputs]) -> Tensor:
        ctx.passes, ctx.groups, ctx.outputs = passes, groups, passes.forward(groups)
        return torch.cat([output.detach() for output in ctx.outputs])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        sizes = [len(output) for output in ctx.outputs]
        ctx.passes.backward(ctx.groups, ctx.outputs, torch.split(gradient, sizes))
        return None, None, None


def _dealt(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Deal out things by their sizes: the largest first, each to the group that has least."""
    loads = [0] * count
    groups: list[list[int]] = [[] for _ in loads]
    for place in sorted(range(len(sizes)), key=lambda place: (-sizes[place], place)):
        least = loads.index(min(loads))
        loads[least] += sizes[place]
        groups[least].append(place)
    return groups


def _workers(model: Any) -> int:
    """Return how many passes are done at a time: several on a CPU that has the cores, else one."""
    return min(torch.get_num_threads(), _MOST) if model.device.type == "cpu" else 1


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Yield so many threads, among which the cores are shared out.

    The thread that asks has one core meanwhile: its helpers of OpenMP spin for milliseconds after each of its
    operators, on the cores of those threads.
    """
    cores = torch.get_num_threads()
    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(max(cores // count, 1),)) as pool:
        try:
            torch.set_num_threads(1)
            yield pool
        finally:
            torch.set_num_threads(cores)


def _draws(model: nn.Module) -> bool:
    """Tell whether a model draws random numbers in training."""
    return any(
        (isinstance(module, nn.Dropout) and module.p > 0) or getattr(module, "attention_dropout", 0.0)
        for module in model.modules()
    )


def _replica(model: Any) -> nn.Module:
    """Return a model that has the same weights, not copies of them, and gradients of its own."""
    known = {id(model.tokenizer): model.tokenizer}
    replica: nn.Module = copy.deepcopy(model, known)
    for weight, other in zip(model.parameters(), replica.parameters(), strict=True):
        other.data = weight.data
        other.grad = None
    return replica.train()
