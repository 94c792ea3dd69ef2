"""A Ray cluster of two nodes on this machine; one of them is killed while both members are in training."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scale.laboratory import Laboratory, different_files
from scale.ranks import wait_for


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
    """Run on the cluster and kill the second node in a training of each member; compare every byte."""
    with two_nodes() as cluster:
        process = lab.start("ray", "--engine", "ray", "--ray-address", cluster.address)
        run = lab.root / "ray"
        wait_for(process, run, "cycle-1/*/cross.training/checkpoint-*/checksums.json", count=2)
        unfinished = {"cycle-1/bert/cross", "cycle-1/roberta/cross"} - set(_finished(run))
        assert len(unfinished) == 2, f"both members were to be in training, one on each node; now {unfinished} are"
        _, second = sorted(cluster.list_all_nodes(), key=lambda node: not node.head)
        cluster.remove_node(second, allow_graceful=False)
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    different = different_files(reference, run)
    assert not different, different
    return ["a node killed with both members in training: the same bytes as the run of one process, file by file"]


def _finished(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "manifest.json").read_text(encoding="utf-8"))["stages"])
