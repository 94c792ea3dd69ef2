"""A Ray cluster of two nodes on this machine: an index is embedded, then one is killed in the middle of a training."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from scale.laboratory import Laboratory, different_files
from trans_encoder.answers import store
from trans_encoder.answers.index import build_index
from trans_encoder.config import EngineConfig
from trans_encoder.data.corpus import Corpus
from trans_encoder.runs import make_engine


@contextmanager
def two_nodes() -> Iterator[Any]:
    """Yield a cluster of a head and a second node, with one CPU each."""
    patient = {"RAY_raylet_start_wait_time_s": "300", "RAY_worker_niceness": "0"}
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", **patient}
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    cluster = Cluster()
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, include_dashboard=False)
        yield cluster
    finally:
        cluster.shutdown()


def check_cluster(lab: Laboratory, reference: Path) -> list[str]:
    """Run on the cluster and kill the second node when it has a training beyond its first checkpoint."""
    with two_nodes() as cluster:
        check_index(lab, cluster.address)
        process = lab.start("ray", "--engine", "ray", "--ray-address", cluster.address)
        run, second = lab.root / "ray", cluster.list_all_nodes()[-1]
        while not (_trainings_have_checkpoints(run) and _is_busy(node=1)):
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        cluster.remove_node(second, allow_graceful=False)
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    different = different_files(reference, run)
    assert not different, different
    return [
        "an index embedded by tasks on both nodes: the same bytes as one process makes",
        "a node killed in the middle of a training: the same bytes as the run of one process, file by file",
    ]


def check_index(lab: Laboratory, address: str) -> None:
    """Embed the texts of an index in small tasks of the cluster, then in this process."""
    model, texts = str(lab.root / "models" / "bert"), Corpus.from_texts([f"text number {n}" for n in range(40)])
    whole, store.SHARD = store.SHARD, 10
    try:
        with make_engine(EngineConfig(name="ray", ray_address=address)) as engine:
            together = build_index(texts, lab.root / "ray.index", models=[model], engine=engine)
        alone = build_index(texts, lab.root / "own.index", models=[model])
    finally:
        store.SHARD = whole
    assert len(together.manifest.shards) == 4
    assert together.manifest.checksums == alone.manifest.checksums


def _trainings_have_checkpoints(run: Path) -> bool:
    """Tell whether trainings are under way, each of them beyond a checkpoint."""
    begun = [folder for kind in ("bi", "cross") for folder in run.glob(f"cycle-1/*/{kind}.training")]
    return bool(begun) and all(list(folder.glob("checkpoint-*/checksums.json")) for folder in begun)


def _is_busy(*, node: int) -> bool:
    """Tell whether a node is at work on a stage."""
    raylets = [child for child in psutil.Process().children() if child.name() == "raylet"]
    raylets.sort(key=lambda raylet: raylet.create_time())
    return any(child.cmdline()[:1] == ["ray::do"] for child in raylets[node].children())
