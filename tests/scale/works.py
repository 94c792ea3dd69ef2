"""Works for stages that do not go well; in a module of their own, which a worker imports in no time."""

import os
import signal
import time
from pathlib import Path

from trans_encoder.errors import RunError

LONG = 900
"""A timeout that is reached only if something is broken."""


def sleep_or_fail(path: Path) -> None:
    """Sleep, or fail, by the name of the result."""
    if path.name == "fails":
        raise RunError("this stage fails")
    time.sleep(LONG)


def die(_: Path) -> None:
    """Be killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def tell_and_sleep(path: Path) -> None:
    """Write down which process this is, and sleep."""
    path.write_text(str(os.getpid()))
    time.sleep(LONG)
