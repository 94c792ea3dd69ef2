"""The processes of one data-parallel run, as `torchrun` and `accelerate launch` start them: ranks 0 to N - 1.

Every rank does the same steps. What must be decided or written once is done by rank 0, and the others are told; what
can be shared out is, and everybody gets the whole, in order. Without such a launcher there is one rank, and everything
here is a plain call.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trans_encoder.errors import RunError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")

_PATIENCE = timedelta(days=1)
"""How long ranks wait for each other between steps: rank 0 may have much to write. One that ends is noticed at once."""


_LOST = re.compile(r"gloo|nccl|connection|closed by peer|recvValue|timed? ?out", flags=re.IGNORECASE)
"""What the errors of torch's backends say when another process is gone."""


def world_size() -> int:
    """Return how many ranks there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Return the number of this process."""
    return int(os.environ.get("RANK", "0")) if world_size() > 1 else 0


def is_first_rank() -> bool:
    """Return whether this is rank 0, the one that decides, writes and prints."""
    return rank() == 0


def from_first_rank(decide: Callable[[], T]) -> T:
    """Return what rank 0 decides; the other ranks wait for it."""
    if world_size() == 1:
        return decide()
    import torch.distributed as dist

    # An error of rank 0 here ends its process, and the others notice that instead of waiting for an answer.
    answer: list[Any] = [decide() if is_first_rank() else None]
    with peers_alive():
        dist.broadcast_object_list(answer, src=0, group=_group())
    return answer[0]  # type: ignore[no-any-return]


def from_all_ranks(mine: T) -> list[T]:
    """Return what every rank brought, in order of the ranks."""
    if world_size() == 1:
        return [mine]
    import torch.distributed as dist

    found: list[Any] = [None] * world_size()
    with peers_alive():
        dist.all_gather_object(found, mine, group=_group())
    return found


def mean_of_ranks(value: float) -> float:
    """Return the mean of every rank's value."""
    if world_size() == 1:
        return value
    import torch
    import torch.distributed as dist

    total = torch.tensor([value], dtype=torch.float64)
    with peers_alive():
        dist.all_reduce(total, group=_group())
    return float(total) / world_size()


def shared_out(work: Callable[[slice], NDArray[Any]], *, count: int) -> NDArray[Any]:
    """Let each rank do its rows of `count`; return all rows, in order."""
    if world_size() == 1:
        return work(slice(0, count))
    # Contiguous shares: concatenated in order of the ranks, they are in order of the rows.
    bounds = np.linspace(0, count, world_size() + 1).astype(int)
    start, stop = bounds[rank() : rank() + 2]
    return np.concatenate(
        [part for part in from_all_ranks(work(slice(start, stop)) if start < stop else None) if part is not None]
    )


@cache
def _group() -> "ProcessGroup":
    """Join the other ranks, each at its own device; return the group that small messages go through."""
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    with peers_alive():
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=_PATIENCE)
        # Small messages go over the CPU, whatever backend the gradients use.
        group: ProcessGroup = dist.new_group(backend="gloo", timeout=_PATIENCE)
    return group


@contextmanager
def joined_ranks() -> Iterator[None]:
    """Work as one of the ranks inside this block, and leave together."""
    if world_size() == 1:
        yield
        return
    import torch.distributed as dist

    _group()
    yield
    from_all_ranks(None)  # a rank that left early would look lost to those still at work
    dist.destroy_process_group()
    _group.cache_clear()


@contextmanager
def peers_alive() -> Iterator[None]:
    """Say so if another rank has ended: what torch reports is only that a connection was closed."""
    try:
        yield
    except RuntimeError as error:
        if world_size() == 1 or not _LOST.search(str(error)):
            raise
        raise RunError(
            f"rank {rank()}: another process of this run has ended or cannot be reached; what is finished is kept. "
            f"See what that process said, then the same command continues"
        ) from error
