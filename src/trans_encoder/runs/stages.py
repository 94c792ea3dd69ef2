"""The stages of a run and what an engine does with them."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Literal, NamedTuple

from trans_encoder.files import atomic_file
from trans_encoder.ranks import from_all_ranks, is_first_rank, rank, world_size

Work = Callable[[Path], None]
"""Makes the result of a stage at the path that it is given, atomically. It depends on nothing but itself, so that an
engine may have it done in another process."""


@dataclass(frozen=True)
class Stage:
    """One step of a run: the place of its result, what the result is made from, and the work that makes it."""

    name: str
    inputs: Mapping[str, Any]
    work: Work
    by: Literal["owner", "any", "all"] = "any"
    """Whose work it is: that of the process which owns the run folder, of any worker, or, where a run has several
    data-parallel ranks, of all of them together."""
    parts: tuple["Stage", ...] = ()
    """What can be done beforehand, side by side: files in the stage's scratch folder. Those that are there stay."""


def scratch(path: Path) -> Path:
    """Return where a stage keeps what it needs to continue; removed once the stage is finished."""
    return path.with_name(path.name + ".training")


class Spent(NamedTuple):
    """What a stage took."""

    seconds: float
    peak_memory_bytes: int | None
    """The most memory that the process which did it has had so far."""

    def and_then(self, after: "Spent") -> "Spent":
        """Return what this and something after it took together."""
        most = max(self.peak_memory_bytes or 0, after.peak_memory_bytes or 0)
        return Spent(self.seconds + after.seconds, most or None)


Engine = Callable[[Path, Sequence[Stage]], Iterator[tuple[Stage, Spent]]]
"""Does the work of independent stages in a folder and yields each as it is finished, with what it took."""


def perform(work: Work, path: Path) -> Spent:
    """Do the work of a stage in this process."""
    begun = perf_counter()
    work(path)
    return Spent(perf_counter() - begun, peak_memory_bytes())


def one_by_one(folder: Path, stages: Sequence[Stage]) -> Iterator[tuple[Stage, Spent]]:
    """Do one stage after the other in this process; where there are several ranks, all of them do."""
    if world_size() == 1:
        yield from ((stage, perform(stage.work, folder / stage.name)) for stage in stages)
        return
    alone = [stage for stage in stages if stage.by == "any"]
    for start in range(0, len(alone), world_size()):
        yield from _one_each(folder, alone[start : start + world_size()])
    for stage in stages:
        if stage.by != "any":
            took = perform(stage.work, folder / stage.name) if stage.by == "all" or is_first_rank() else None
            spent = [each for each in from_all_ranks(took) if each]
            yield stage, reduce(Spent.and_then, spent)._replace(seconds=max(each.seconds for each in spent))


def _one_each(folder: Path, stages: Sequence[Stage]) -> Iterator[tuple[Stage, Spent]]:
    """Let each rank make one file; rank 0 alone writes into the run folder, what the others made too."""
    mine = stages[rank()] if rank() < len(stages) else None
    made: tuple[Spent, bytes | None] | None = None
    if is_first_rank():
        made = perform(stages[0].work, folder / stages[0].name), None
    elif mine is not None:
        with TemporaryDirectory(prefix="trans-encoder-") as temporary:
            place = Path(temporary) / Path(mine.name).name
            made = perform(mine.work, place), place.read_bytes()
    for stage, (spent, content) in zip(stages, filter(None, from_all_ranks(made)), strict=True):
        if is_first_rank() and content is not None:
            with atomic_file(folder / stage.name) as file:
                file.write_bytes(content)
        yield stage, spent


def peak_memory_bytes() -> int | None:
    """Return the most memory that this process has had, where the system tells."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
