"""Which engine keeps an index: faiss with Arrow files (what this package does) or LanceDB; time, recall, memory, disk.

    python benchmarks/index_engines.py vectors.npy --engine faiss
    python benchmarks/index_engines.py vectors.npy --engine lancedb      # in an environment with lancedb

`vectors.npy` holds one unit vector a text. Both engines store vectors with ids, search 1,000 of them for their 10
nearest, and are opened again from the disk. Two things are asked: single searches, as a server gets them, and the
neighbours of all texts, which duplicates need. LanceDB has as many clusters as our index, and every search looks into
as many of them; the neighbours of all are asked for in batches, of 5,000 texts and reckoned up. Seconds are of the
processor, all threads together, beside those of the clock.
"""

import argparse
import json
import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

QUERIES, NEAREST = 1000, 10


class Clock:
    """Notes the processor's seconds and the wall clock's of each part."""

    def __init__(self):
        self.parts = {}
        self._last = time.process_time(), time.perf_counter()

    def note(self, name):
        now = time.process_time(), time.perf_counter()
        self.parts[name] = {"cpu": round(now[0] - self._last[0], 2), "wall": round(now[1] - self._last[1], 2)}
        self._last = time.process_time(), time.perf_counter()


def with_faiss(vectors, chosen, folder, clock):
    import pyarrow as pa

    from trans_encoder.answers.retrieval.dense import DenseIndex

    ids = pa.table({"id": [str(number) for number in range(len(vectors))]})
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, ids.schema) as writer:
        writer.write_table(ids)
    np.save(folder / "vectors.npy", vectors.astype(np.float16))
    DenseIndex(np.load(folder / "vectors.npy", mmap_mode="r"), exact=0, cache=folder / "clusters.npz")
    clock.note("build")
    dense = DenseIndex(np.load(folder / "vectors.npy", mmap_mode="r"), exact=0, cache=folder / "clusters.npz")
    clock.note("open")
    found = np.concatenate([dense.search(vectors[[row]], NEAREST + 1)[0] for row in chosen])
    clock.note("single searches")
    near = dense.neighbours(NEAREST).positions
    clock.note("neighbours of all")
    return found, near[chosen]


def with_lancedb(vectors, chosen, folder, clock):
    import lancedb
    import pyarrow as pa
    from lancedb.index import IvfFlat

    width = vectors.shape[1]
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), width)
    ids = pa.array(np.arange(len(vectors)))
    table = lancedb.connect(str(folder)).create_table("texts", pa.table({"id": ids, "vector": column}))
    clusters = -(-len(vectors) // CLUSTER)
    table.create_index("vector", config=IvfFlat(distance_type="dot", num_partitions=clusters))
    clock.note("build")
    table = lancedb.connect(str(folder)).open_table("texts")
    clock.note("open")

    def nearest(queries):
        found = table.search(queries, vector_column_name="vector").distance_type("dot").nprobes(PROBES)
        return found.limit(NEAREST + 1).select(["id", "_distance"]).to_arrow()

    found = np.stack([np.array(nearest(vectors[row])["id"]) for row in chosen])
    clock.note("single searches")
    some = np.arange(0, len(vectors), max(len(vectors) // 5000, 1))
    for start in range(0, len(some), BATCH):
        nearest(vectors[some[start : start + BATCH]])
    clock.note("neighbours of some")
    clock.parts["neighbours of all"] = {
        name: round(value * len(vectors) / len(some), 1)
        for name, value in clock.parts.pop("neighbours of some").items()
    }
    return found, found


CLUSTER, PROBES, BATCH = 256, 96, 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--engine", choices=("faiss", "lancedb"), required=True)
    arguments = parser.parse_args()
    vectors = np.load(arguments.vectors).astype(np.float32)
    chosen = np.sort(np.random.default_rng(0).choice(len(vectors), size=QUERIES, replace=False))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    folder, clock = Path(tempfile.mkdtemp()), Clock()
    found, near = {"faiss": with_faiss, "lancedb": with_lancedb}[arguments.engine](vectors, chosen, folder, clock)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    exact = np.argsort(-(vectors[chosen] @ vectors.T), axis=1)[:, : NEAREST + 1]
    hits = [len(set(a) & set(b)) for a, b in zip(exact.tolist(), found.tolist(), strict=True)]
    every = [len(set(a) & set(b) - {c}) for a, b, c in zip(exact.tolist(), near.tolist(), chosen.tolist(), strict=True)]
    disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    shutil.rmtree(folder)
    result = {"engine": arguments.engine, "texts": len(vectors), "width": vectors.shape[1], "seconds": clock.parts}
    result |= {"recall": round(sum(hits) / exact.size, 4), "recall_of_all": round(sum(every) / NEAREST / QUERIES, 4)}
    result |= {"disk_mib": disk >> 20, "peak_mib": (peak - before) >> 10}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
