"""Which runner takes a model through batches: the plain one or, on a CPU, the fast one."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from trans_encoder.runner import Forward, PlainRunner, Runner


def runner_for(model: Any, forward: Forward, fast: bool | None = None) -> Runner:
    """Return the runner of a model.

    `fast=False` chooses the plain runner, and so does TRANS_ENCODER_FAST=0 in the environment where `fast` is None.
    """
    wanted = os.environ.get("TRANS_ENCODER_FAST", "1") != "0" if fast is None else fast
    if not wanted or model.device.type != "cpu":
        return PlainRunner(model, forward)
    fast_passes = _fast_passes()
    return PlainRunner(model, forward) if fast_passes is None else fast_passes.FastRunner(model, forward)


def first_token_pass(model: Any) -> AbstractContextManager[None]:
    """Compute only the first token in the last layer inside this block, if the model reads no other one."""
    fast_passes = _fast_passes()
    return nullcontext() if fast_passes is None else fast_passes.first_token_pass(model)


def _fast_passes() -> Any:
    """Return the package `fast`, None if its folder was deleted."""
    try:
        import trans_encoder.fast
    except ModuleNotFoundError as error:
        if error.name != "trans_encoder.fast":
            raise
        return None
    return trans_encoder.fast
