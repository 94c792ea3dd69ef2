"""Which runner takes a model through batches: the plain one or, on a CPU, the fast one."""

import os
from typing import Any

from trans_encoder.runner import Forward, PlainRunner, Runner


def runner_for(model: Any, forward: Forward, fast: bool | None = None) -> Runner:
    """Return the runner of a model.

    `fast=False` chooses the plain runner, and so does TRANS_ENCODER_FAST=0 in the environment where `fast` is None.
    """
    wanted = os.environ.get("TRANS_ENCODER_FAST", "1") != "0" if fast is None else fast
    if not wanted or model.device.type != "cpu":
        return PlainRunner(model, forward)
    try:
        from trans_encoder.fast import FastRunner
    except ModuleNotFoundError as error:
        if error.name != "trans_encoder.fast":
            raise
        return PlainRunner(model, forward)  # the folder fast/ was deleted
    return FastRunner(model, forward)
