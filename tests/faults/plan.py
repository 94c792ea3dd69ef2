"""Faults and what came of them."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faults.laboratory import Laboratory, Problem


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong in a run, and the check that the run survives it."""

    kind: str
    detail: str
    inject: Callable[[Laboratory, Path], Problem]
    """Given a path for a run folder; returns what was not survived."""


@dataclass(frozen=True)
class Outcome:
    """What came of a fault."""

    kind: str
    detail: str
    problem: Problem


def suffer(fault: Fault, lab: Laboratory, place: Path) -> Outcome:
    """Put a fault into a run below a new folder, which is removed afterwards."""
    place.mkdir(parents=True)
    try:
        return Outcome(fault.kind, fault.detail, fault.inject(lab, place / "run"))
    except Exception as error:
        return Outcome(fault.kind, fault.detail, f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
