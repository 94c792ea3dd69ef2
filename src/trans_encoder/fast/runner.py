"""The fast runner: what the plain one computes, on a CPU, without padding and in threads."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from itertools import chain
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW

from trans_encoder.fast.embeddings import TrainedEmbeddings, word_embeddings
from trans_encoder.fast.last_layer import can_skip_tokens, first_token_only
from trans_encoder.fast.matmul import Prepacked, prepacked
from trans_encoder.fast.optimiser import ShardedAdamW, clip_gradients
from trans_encoder.fast.packing import active, packable, packing
from trans_encoder.fast.randomness import Stream, draws
from trans_encoder.fast.threads import LANES, Lanes, split_packed, thread_pool
from trans_encoder.runner import (
    Forward,
    Inputs,
    Lengths,
    Optimiser,
    PlainRunner,
    TrainingSession,
    in_order,
    split_by_length,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

_AHEAD = 2 * LANES
"""Batches that are scored before the first of them is taken: their outputs stay in memory until then."""
_CHECKED_TOKENS = 512
"""Tokens of the first batch that are computed both ways: enough for every code path, and soon done."""
_TOLERANCE, _HALF_TOLERANCE = 1e-4, 5e-2
"""Largest difference from the plain way that is rounding, relative to the largest output; in half precision."""


class FastRunner(PlainRunner):
    """Replaces a model's forward passes inside `predict` and `training`, and only there.

    The first inputs of every scoring and training are computed both ways. Where they differ, the plain way is taken.
    """

    def __init__(self, model: Any, forward: Forward) -> None:
        super().__init__(model, forward)
        self._session: PackedTraining | None = None
        self._lock, self._users, self._patches = Lock(), 0, ExitStack()

    def split(self, lengths: Lengths) -> list[NDArray[np.intp]]:
        """Split a batch for the lanes of a training, by tokens if it is packed."""
        if self._session is None:
            return super().split(lengths)
        return self._session.split(lengths)

    def __call__(self, groups: Sequence[Inputs]) -> Tensor:
        """Return the outputs of all groups, with gradients; in lanes while a training lasts."""
        return super().__call__(groups) if self._session is None else self._session.run(groups)

    def predict(self, batches: Iterable[T], inputs: Callable[[T], Inputs]) -> Iterator[tuple[T, Tensor]]:
        """Yield each batch with its outputs; several batches are computed at a time."""
        batches = iter(batches)
        first = next(batches, None)
        if first is None:
            return
        second = next(batches, None)
        if second is None and self._session is None and len(inputs(first)["input_ids"]) == 1:
            # A single input, such as a query, has no padding to save, and comparing both ways would triple its time.
            yield from super().predict([first], inputs)
            return
        weights: Prepacked = {}  # filled by the first batches, read by all threads
        autocast = _autocast()
        session = self._session

        def outputs(run: Forward, batch: T) -> tuple[T, Tensor]:
            with torch.inference_mode(), prepacked(weights), autocast():  # these modes belong to a thread
                return batch, run(self.model, inputs(batch)).float().cpu()

        with self.patched(), ExitStack() as stack:
            fast = None if session is None else session.agreed  # what a training has checked is not checked again
            if fast is None:
                with prepacked(weights):
                    fast = self.agrees(inputs(first))
            pool = _pool(stack) if session is None else session.pool
            work = partial(outputs, self.fast_forward if fast else self.forward)
            every = chain([first, second], batches) if second is not None else [first]
            yield from map(work, every) if pool is None else in_order(pool, work, every, ahead=_AHEAD)

    @contextmanager
    def training(self, tokens: Lengths, *, seed: int, distributed: bool) -> Iterator[TrainingSession]:
        """Train in lanes, with the embeddings of these tokens only; alone, and on a CPU."""
        with ExitStack() as stack:
            if distributed:  # gradients must reach the hooks of torch's DDP, which those of replicas do not
                session = PackedTraining(self)
            else:
                table = word_embeddings(self.model)
                embeddings = None if table is None else TrainedEmbeddings(table, tokens)
                if embeddings is not None:
                    stack.enter_context(embeddings.in_place())
                session = ThreadedTraining(self, embeddings, seed=seed, stack=stack)
            stack.enter_context(self.patched())
            self._session = session
            try:
                yield session
            finally:
                self._session = None

    def fast_forward(self, model: Any, inputs: Inputs) -> Tensor:
        """Do one pass the fast way."""
        token = active.set(True)
        try:
            return self.forward(model, inputs)
        finally:
            active.reset(token)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Replace the model's forward passes inside this block; several threads may be in it."""
        # Several threads of a server may score with one model: the first patches it, the last restores it.
        with self._lock:
            if self._users == 0:
                self._patches = patches(self.model)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._patches.close()

    def agrees(self, inputs: Inputs) -> bool:
        """Compare both ways on the first inputs of a batch, in evaluation mode; warn where they differ."""
        some = first_inputs(inputs)
        training = self.model.training
        self.model.eval()  # dropout would make the two passes differ
        try:
            with torch.no_grad():
                plain, fast = (run(self.model, some).float() for run in (self.forward, self.fast_forward))
        finally:
            self.model.train(training)
        share = _HALF_TOLERANCE if torch.is_autocast_enabled("cpu") else _TOLERANCE
        largest = float(plain.abs().nan_to_num().max())
        if torch.allclose(fast, plain, rtol=0.0, atol=share * max(largest, 1.0), equal_nan=True):
            return True
        difference = float((fast - plain).abs().max())
        _warn(type(getattr(self.model[0], "model", self.model)).__name__, f"{difference:.2g}")
        return False


class PackedTraining(TrainingSession):
    """A training in packed passes, one after another: one of several processes."""

    pool: ThreadPoolExecutor | None = None
    agreed: bool | None = None
    """Whether both ways gave the same for the first batch; None before it."""

    def __init__(self, runner: FastRunner) -> None:
        self._runner = runner
        self._packs = packable(runner.model)

    def split(self, lengths: Lengths) -> list[NDArray[np.intp]]:
        """Split a batch into groups for the lanes, by tokens if they are packed."""
        return split_packed(lengths) if self._packs else split_by_length(lengths, at_least=LANES)

    def run(self, groups: Sequence[Inputs]) -> Tensor:
        """Return the outputs of all groups, with gradients; the first batch is checked."""
        if self.agreed is None:
            self.agreed = self._runner.agrees(groups[0])
            if self.agreed:
                self.prepare(groups[0])
        return self.outputs(groups) if self.agreed else PlainRunner.__call__(self._runner, groups)

    def prepare(self, inputs: Inputs) -> None:
        """Prepare for batches such as this first one."""

    def outputs(self, groups: Sequence[Inputs]) -> Tensor:
        """Return the outputs of all groups, computed the fast way."""
        return torch.cat([self._runner.fast_forward(self._runner.model, group) for group in groups])


class ThreadedTraining(PackedTraining):
    """A training in one process: lanes, random streams for dropout, small embeddings, AdamW in threads."""

    def __init__(
        self, runner: FastRunner, embeddings: TrainedEmbeddings | None, *, seed: int, stack: ExitStack
    ) -> None:
        super().__init__(runner)
        self._embeddings, self._seed = embeddings, seed
        self._step, self._calls, self._streams = 0, 0, False
        threads = torch.get_num_threads()
        self.pool: ThreadPoolExecutor = stack.enter_context(thread_pool(min(threads, LANES)))
        self._lanes = Lanes(runner.model, self._pass, threads=threads, pool=self.pool)
        self._autocast = _autocast()
        for replica in self._lanes.replicas[1:]:
            stack.enter_context(patches(replica))

    def begin_step(self, step: int) -> None:
        """Choose the random streams of this step."""
        self._step, self._calls = step, 0

    def optimiser(self, chosen: Optimiser) -> Optimiser:
        """Let threads share the steps of AdamW."""
        kind, settings = chosen
        return (ShardedAdamW, {**settings, "share_out": self._lanes.share_out}) if kind is AdamW else chosen

    def clip(self, weights: Iterable[nn.Parameter], most: float) -> Tensor:
        """Clip gradients by global norm and return it."""
        if self._embeddings is not None:
            self._embeddings.gather()
        return clip_gradients(weights, most, self._lanes.share_out)

    def prepare(self, inputs: Inputs) -> None:
        """Find out by experiment whether the model draws random numbers in training, and streams can replace them."""
        runner, some = self._runner, first_inputs(inputs)

        def run(stream: Callable[[], AbstractContextManager[Any]]) -> Tensor:
            with torch.no_grad(), stream():
                return runner.fast_forward(runner.model, some)

        if draws(partial(run, nullcontext)):
            # With gradient checkpointing, layers run again in the backward pass, outside of their streams.
            again = any(getattr(module, "gradient_checkpointing", False) for module in runner.model.modules())
            self._streams = not again and not draws(partial(run, partial(Stream, 0)))
            self._lanes.in_order = not self._streams
            if not self._streams:
                logger.info("passes take turns, because the model draws random numbers that have one order only")

    def outputs(self, groups: Sequence[Inputs]) -> Tensor:
        """Return the outputs of all groups, computed in lanes."""
        self._calls += 1
        self._autocast = _autocast()
        return self._lanes(groups)

    def _pass(self, model: nn.Module, inputs: Inputs, place: int) -> Tensor:
        stream = Stream(self._seed, self._step, self._calls, place) if self._streams else nullcontext()
        with self._autocast(), stream:
            return self._runner.fast_forward(model, inputs)


def patches(model: Any) -> ExitStack:
    """Replace the forward passes of a model that we know; closing the result puts its own back."""
    stack = ExitStack()
    skips = can_skip_tokens(model)  # asked before packing replaces forwards, which it would take for hooks
    if packable(model):
        stack.enter_context(packing(model))
    if skips:
        stack.enter_context(first_token_only(model))
    return stack


def first_inputs(inputs: Inputs) -> Inputs:
    """Return as many of the inputs as have some hundred tokens."""
    count = -(-_CHECKED_TOKENS // inputs["input_ids"].shape[1])
    return {name: value[:count] if isinstance(value, Tensor) else value for name, value in inputs.items()}


def _pool(stack: ExitStack) -> ThreadPoolExecutor | None:
    threads = min(torch.get_num_threads(), LANES)
    return stack.enter_context(thread_pool(threads)) if threads > 1 else None


def _autocast() -> Callable[[], AbstractContextManager[Any]]:
    """Return what brings this thread's number format to another; its cache of cast weights is shared, so not used."""
    enabled, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return partial(torch.autocast, "cpu", dtype=dtype, enabled=enabled, cache_enabled=False)


@cache
def _warn(model: str, difference: str) -> None:
    """Warn once of each model."""
    logger.warning(
        "the fast forward pass of %s differs from transformers' own by %s, so the plain one is used "
        "(torch %s, transformers %s); please report these versions, and switch it off with TRANS_ENCODER_FAST=0",
        model,
        difference,
        torch.__version__,
        transformers.__version__,
    )
