"""Experiment trackers of the trainer: checked before any work begins, their logs kept in the run folder."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from trans_encoder.errors import MissingExtraError
from trans_encoder.ranks import is_first_rank

LOGS = "logs"
"""The folder of a run that trackers write to; no stage, so nothing of it is checked or made again."""


def check_trackers(trackers: Sequence[str]) -> None:
    """Refuse a tracker that is not installed; package, extra and tracker have the same name."""
    for name in trackers:
        if find_spec(name) is None:
            raise MissingExtraError(name, extra=name)


@contextmanager
def tracked(trackers: Sequence[str], logs: Path) -> Iterator[None]:
    """Have the trackers of trainings inside this block write to a folder; they are told by the environment alone."""
    if not trackers:
        yield
        return
    if is_first_rank():
        logs.mkdir(parents=True, exist_ok=True)
    places = {"TENSORBOARD_LOGGING_DIR": str(logs), "WANDB_DIR": str(logs), "WANDB_NAME": logs.name}
    before = {name: os.environ.get(name) for name in places}
    os.environ.update(places)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        if "wandb" in trackers:
            import wandb

            wandb.finish()  # the trainer leaves it open, and the next training would go on in it
