"""Forward passes, plain or fast: `runner_for` is the only door.

`plain.py` specifies what a runner does. The other modules compute the same numbers sooner on a CPU and can be deleted:
`runner_for` then returns the plain runner.
"""

import os
from typing import Any

from trans_encoder.fast.plain import Forward, Inputs, Lengths, PlainRunner, Runner, Training, split_by_length

__all__ = ["Forward", "Inputs", "Lengths", "Runner", "Training", "runner_for", "split_by_length"]


def runner_for(model: Any, forward: Forward, fast: bool | None = None) -> Runner:
    """Return what takes a model through batches: the plain runner or, on a CPU, the fast one.

    `fast=False` chooses the plain runner, and so does TRANS_ENCODER_FAST=0 in the environment where `fast` is None.
    """
    wanted = os.environ.get("TRANS_ENCODER_FAST", "1") != "0" if fast is None else fast
    if not wanted or model.device.type != "cpu":
        return PlainRunner(model, forward)
    try:
        from trans_encoder.fast.runner import FastRunner
    except ModuleNotFoundError:  # everything but plain.py may be deleted
        return PlainRunner(model, forward)
    return FastRunner(model, forward)
