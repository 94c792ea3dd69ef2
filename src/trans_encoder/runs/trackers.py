"""Experiment trackers of the trainer: checked before any work begins, their logs kept in the run folder."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from trans_encoder.errors import MissingExtraError
from trans_encoder.ranks import is_first_rank


def check_trackers(trackers: Sequence[str]) -> None:
    """Refuse a tracker that is not installed; package, extra and tracker have the same name."""
    for name in trackers:
        if find_spec(name) is None:
            raise MissingExtraError(name, extra=name)


@contextmanager
def tracked(trackers: Sequence[str], logs: Path) -> Iterator[None]:
    """Have the trackers of a training inside this block write to a folder of their own."""
    if not trackers:
        yield
        return
    if is_first_rank():
        logs.mkdir(parents=True, exist_ok=True)
    with _in_environment("TENSORBOARD_LOGGING_DIR", str(logs)), _wandb_run(logs, wanted="wandb" in trackers):
        yield


@contextmanager
def _in_environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


@contextmanager
def _wandb_run(logs: Path, *, wanted: bool) -> Iterator[None]:
    """Open the run that a training logs to: left to the trainer, all would be in the folder of the first."""
    if not wanted or not is_first_rank():
        yield
        return
    import wandb

    project = os.environ.get("WANDB_PROJECT", "trans-encoder")
    with wandb.init(project=project, dir=str(logs), name=logs.name):
        yield
