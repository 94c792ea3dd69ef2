"""Stages as tasks of a Ray cluster; tasks lost with a node continue on another from their last checkpoint."""

import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from trans_encoder.config import EngineConfig
from trans_encoder.errors import ConfigurationError, MissingExtraError, RunError
from trans_encoder.runs.stages import Engine, Spent, Stage
from trans_encoder.runs.workers.here import RESUME, asked_threads, do

logger = logging.getLogger(__name__)

_RETRIES = 5
"""How often a stage is tried again after its worker was lost; its own errors end the run at once."""


@contextmanager
def ray_tasks(config: EngineConfig, *, device: str) -> Iterator[Engine]:
    """Yield an engine that has stages done on a cluster, or on a Ray of this machine's own without an address."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere unless somebody asks for it
    os.environ.setdefault("RAY_task_oom_retries", str(_RETRIES))  # Ray's own number is infinite
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise MissingExtraError("ray", extra="ray") from None
    connected = ray.is_initialized()
    if not connected:
        _connect(ray, config.ray_address)
    try:
        asked = {"num_cpus": config.num_cpus, "num_gpus": _gpus(ray, config, device=device)}
        task: Any = ray.remote(do).options(max_retries=_RETRIES, **asked)
        threads = asked_threads()

        def engine(folder: Path, stages: Sequence[Stage]) -> Iterator[tuple[Stage, Spent]]:
            running = {
                task.remote(stage.work, folder / stage.name, run=folder, threads=threads): stage for stage in stages
            }
            try:
                while running:
                    (done,), _ = ray.wait(list(running))
                    yield running.pop(done), _result(ray, done)
            finally:
                for left in running:  # the run has failed: no task may write to its folder any longer
                    ray.cancel(left, force=True)

        yield engine
    finally:
        if not connected:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    own = {} if address else {"include_dashboard": False}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    except Exception as error:  # Ray has no class of its own for this
        raise ConfigurationError(
            f"no Ray cluster answers at {address or 'this machine'} ({error}); start one (ray start --head) and give "
            f"its address: --ray-address HOST:6379, or auto on one of its machines"
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray puts its own in place


def _gpus(ray: Any, config: EngineConfig, *, device: str) -> float:
    """Return the GPUs of a task: as configured, or one where the cluster has any. Raise if no node has them."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = config.num_gpus
    if gpus is None:
        gpus = 1.0 if device != "cpu" and any("GPU" in resources for resources in nodes) else 0.0
    if not any(node.get("GPU", 0) >= gpus and node.get("CPU", 0) >= config.num_cpus for node in nodes):
        logger.warning(
            "no machine of the Ray cluster has %g CPUs and %g GPUs; the run waits until one joins "
            "(--set engine.num_cpus, --set engine.num_gpus)",
            config.num_cpus,
            gpus,
        )
    return gpus


def _result(ray: Any, done: Any) -> Spent:
    """Return what a stage took, or raise its own error."""
    try:
        spent: Spent = ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise RunError(f"the Ray cluster lost a stage {_RETRIES + 1} times ({reason}); {RESUME}") from error
    return spent
