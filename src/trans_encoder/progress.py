"""Progress of long work: silent in a library; the command line shows bars on a terminal and plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from trans_encoder.ranks import is_first_rank

console = Console(stderr=True)
"""Standard error, shared by bars, logs and errors: while a bar is drawn, rich prints everything else above it."""

_LINE_SECONDS = 30.0


class _Display(Protocol):
    """Shows how far one piece of work is."""

    def stage(self, description: str, *, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show a piece of work until the block ends; yield a function that advances it."""


_current: ContextVar[_Display | None] = ContextVar("progress", default=None)


class _Bars:
    """One bar for each piece of work that is under way."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars

    @contextmanager
    def stage(self, description: str, *, total: int) -> Iterator[Callable[[int], None]]:
        task = self._bars.add_task(description, total=total)
        try:
            yield lambda units: self._bars.advance(task, units)
        finally:
            self._bars.remove_task(task)


class _Lines:
    """One line when a stage is met for the first time, then one every half minute: for log files and pipes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._met: set[str] = set()
        self._last = -_LINE_SECONDS

    @contextmanager
    def stage(self, description: str, *, total: int) -> Iterator[Callable[[int], None]]:
        begun, done = self._clock(), 0
        if description not in self._met:
            self._met.add(description)
            self._print(f"{description}: {total:,}")

        def advance(units: int) -> None:
            nonlocal done
            done += units
            now = self._clock()
            if now - self._last >= _LINE_SECONDS:
                remaining = (now - begun) * (total - done) / done if done else 0.0
                self._print(f"{description}: {done:,} of {total:,}, about {duration(remaining)} remaining")

        yield advance

    def _print(self, line: str) -> None:
        self._last = self._clock()
        console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def show_progress() -> Iterator[None]:
    """Show the progress of all work inside this block on standard error; of several ranks the first does."""
    if not is_first_rank() or _current.get() is not None:
        yield
        return
    with _display() as display:
        token = _current.set(display)
        try:
            yield
        finally:
            _current.reset(token)


@contextmanager
def _display() -> Iterator[_Display]:
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield _Bars(bars)


@contextmanager
def progress(description: str, *, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a piece of work of `total` units by the given number."""
    display = _current.get()
    if display is None or total == 0:
        yield lambda _: None
        return
    with display.stage(description, total=total) as advance:
        yield advance


def duration(seconds: float) -> str:
    """Write a time in the two units that matter."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
