"""Acting at an exact change of a folder: audit hooks see each one before it is made."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Change:
    """A file opened for writing, a rename, a new or a removed file or folder."""

    number: int
    event: str
    place: str

    @property
    def is_write(self) -> bool:
        """Whether a finished file or folder takes its place: the moments that decide what a run knows."""
        return self.event == "os.rename"


class Watch:
    """Calls back in this process, until it ends, before each change of a folder, or before whatever comes after it."""

    def __init__(self, folder: Path, act: Callable[[Change], None], *, after: bool = False) -> None:
        self._prefix, self._act, self._after = str(folder), act, after
        self._count, self._busy = 0, False
        self._made: Change | None = None
        sys.addaudithook(self._notice)

    def _notice(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            if self._made is not None:
                self._act(self._made)
                self._made = None
            place = _changed(event, arguments)
            if place is not None and place.startswith(self._prefix):
                self._count += 1
                change = Change(self._count, event, place)
                if self._after:
                    self._made = change
                else:
                    self._act(change)
        finally:
            self._busy = False


def _changed(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Return the path that an event of the interpreter is about to change."""
    if event == "open":
        path, _, flags = arguments
        return str(path) if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) else None
    if event == "os.rename":
        return str(arguments[1])
    return str(arguments[0]) if event in ("os.mkdir", "os.remove", "os.rmdir") else None


def at(number: int, act: Callable[[], object]) -> Callable[[Change], None]:
    """Return a callback that acts at one change."""

    def callback(change: Change) -> None:
        if change.number == number:
            act()

    return callback


def kill_self() -> None:
    """End this process at once, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)
