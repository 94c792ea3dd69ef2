"""A stage of a run, its identity, and how attempts at it are timed."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, time
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from trans_encoder.ranks import is_first_rank
from trans_encoder.runs.layout import is_scratch, scratch, scratch_time
from trans_encoder.runs.records import Record

Work = Callable[[Path], None]
"""Makes the result of a stage at the path that it is given, atomically. It depends on nothing but its own fields, so
that it can be sent to another process."""


@dataclass(frozen=True)
class Stage:
    """One step of a run: the place of its result, what the result is made from, and the work that makes it."""

    name: str
    inputs: Mapping[str, Any]
    work: Work
    by: Literal["owner", "any", "all"] = "any"
    """Who does it: the process that owns the run folder, any worker or, with data-parallel ranks, all of them."""
    parts: tuple["Stage", ...] = ()
    """Files in the stage's scratch folder that can be made beforehand, in parallel. Existing ones are kept."""


def identity(inputs: Any) -> str:
    """Return a hash of what a stage is made from, as plain values."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def short_identity(inputs: Any) -> str:
    """Return the beginning of such a hash, for names of files and folders."""
    return identity(inputs)[:16]


class Spent(NamedTuple):
    """What a stage took."""

    seconds: float
    peak_memory_bytes: int | None
    """The peak memory of the process that did it, up to its end."""

    def and_then(self, after: "Spent") -> "Spent":
        """Return what this and something after it took in total."""
        most = max(self.peak_memory_bytes or 0, after.peak_memory_bytes or 0)
        return Spent(self.seconds + after.seconds, most or None)


Engine = Callable[[Path, Sequence[Stage]], Iterator[tuple[Stage, Spent]]]
"""Does the work of independent stages in a folder and yields each as it is finished, with what it took."""


class _Attempts(Record):
    """The time that attempts at a stage have taken."""

    seconds: float
    """Of all attempts that have ended."""
    begun: float | None
    """When the current attempt began; still set if it was killed."""


@contextmanager
def attempted(path: Path) -> Iterator[Callable[[], float]]:
    """Time an attempt at a stage, and keep the time until the stage is finished; yield the seconds of all attempts.

    Parts of a stage are not timed on their own: they are made within an attempt at the stage.
    """
    timed = is_first_rank() and not is_scratch(path)
    earlier, begun = _earlier_seconds(path) if timed else 0.0, perf_counter()

    def seconds() -> float:
        return earlier + perf_counter() - begun

    if not timed:
        yield seconds
        return
    _note(path, _Attempts(seconds=earlier, begun=time()))
    try:
        yield seconds
    finally:
        with suppress(OSError):  # the storage may be what failed
            _note(path, _Attempts(seconds=seconds(), begun=None))


def _earlier_seconds(path: Path) -> float:
    """Return what earlier attempts took. One that was killed lasted at least until its last checkpoint."""
    try:
        known = _Attempts.model_validate_json(scratch_time(path).read_bytes())
    except (OSError, ValidationError):
        return 0.0
    if known.begun is None:
        return known.seconds
    # A killed attempt could not note its end; the newest file in its scratch folder is the last sign of it.
    last = max((file.stat().st_mtime for file in scratch(path).iterdir()), default=known.begun)
    return known.seconds + max(last - known.begun, 0.0)


def _note(path: Path, attempts: _Attempts) -> None:
    """Keep the time in the scratch folder, which is removed when the stage is finished."""
    note = scratch_time(path)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(attempts.model_dump_json(), encoding="utf-8")


def peak_memory_bytes() -> int | None:
    """Return this process's peak memory, where the system reports it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
