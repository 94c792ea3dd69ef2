"""Settings that hold inside a block, for the thread that is in it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Setting(threading.local, Generic[T]):
    """A value that each thread has for itself."""

    def __init__(self, usual: T) -> None:
        """Have this value in every thread, unless it is in a block with another."""
        self.value = usual

    @contextmanager
    def during(self, value: T) -> Iterator[None]:
        """Have another value inside this block."""
        before, self.value = self.value, value
        try:
            yield
        finally:
            self.value = before
