"""Progress bars for long work: silent in a library, switched on by the command line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from trans_encoder.ranks import is_first_rank

_current: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def show_progress() -> Iterator[None]:
    """Show the bars of all work inside this block on standard error; of several ranks the first does."""
    if not is_first_rank():
        yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        token = _current.set(bars)
        try:
            yield
        finally:
            _current.reset(token)


@contextmanager
def progress(description: str, *, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a bar of `total` units by the given number."""
    bars = _current.get()
    if bars is None:
        yield lambda _: None
        return
    task = bars.add_task(description, total=total)
    try:
        yield lambda units: bars.advance(task, units)
    finally:
        bars.remove_task(task)


def duration(seconds: float) -> str:
    """Write a time in the two units that matter."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
