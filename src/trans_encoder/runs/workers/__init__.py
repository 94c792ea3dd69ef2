"""Where the stages of a run are done: here, in processes side by side, or on a Ray cluster. The result is the same.

An engine is a function of a run folder and independent stages; see `runs.stages`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from trans_encoder.config import EngineConfig
from trans_encoder.errors import ConfigurationError
from trans_encoder.ranks import world_size
from trans_encoder.runs.stages import Engine
from trans_encoder.runs.workers.processes import side_by_side
from trans_encoder.runs.workers.ranks import local_engine
from trans_encoder.runs.workers.ray import ray_tasks


@contextmanager
def make_engine(config: EngineConfig, *, device: str = "auto") -> Iterator[Engine]:
    """Yield the engine that a configuration asks for; the processes it started end with the block."""
    if device.startswith("cuda:") and (world_size() > 1 or config.name == "ray" or (config.workers or 1) > 1):
        raise ConfigurationError(
            f"several processes cannot all work on {device}; give --set device=cuda, and each has its own"
        )
    alone = config.name == "local" and (config.workers or 1) == 1
    if world_size() > 1 and not alone:
        raise ConfigurationError(
            "several data-parallel processes (torchrun, accelerate launch) are an engine of their own; start the "
            "command without them to use --engine ray or --workers"
        )
    workers = 1 if world_size() > 1 else config.workers or _devices(device)
    if config.name == "ray":
        with ray_tasks(config, device=device) as engine:
            yield engine
    elif workers > 1:
        with side_by_side(workers) as engine:
            yield engine
    else:
        yield local_engine()


def _devices(device: str) -> int:
    """Count the CUDA devices that a run may use; one for everything else."""
    import torch

    return max(torch.cuda.device_count(), 1) if device in ("auto", "cuda") else 1
