"""How much faster two local workers label a large pair set than one.

    OMP_NUM_THREADS=1 python benchmarks/labelling.py --model MODEL --pairs 262144 --kind cross

Both do the same stage of a run, shard by shard, with the same engine: processes of one thread each, which have loaded
the package before the clock starts. Prints one JSON object. Only a ratio of one run on an idle machine means anything.
"""

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from made_pairs import made_pairs
from measuring import timed

from trans_encoder.config import make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.labels import SHARD_PAIRS, LabelShard, cut, parts
from trans_encoder.distill.work import Cycle, Label
from trans_encoder.runs import Layout
from trans_encoder.runs.run import Run
from trans_encoder.runs.stages import Stage
from trans_encoder.runs.workers.processes import side_by_side
from trans_encoder.teachers import ModelRef


def label(folder: Path, teacher: ModelRef, *, count: int, workers: int) -> float:
    """Label the pairs of a folder with a number of workers; return the seconds."""
    cycle = Cycle(1, Layout(folder), make_config([teacher.source]))
    work, pairs = Label(cycle, (teacher,), by_starts=True), cycle.pairs
    shards = list(cut(pairs, teacher, count=count, cycle=1))
    with (
        side_by_side(workers) as engine,
        Run.claim(folder / f"{workers}", config={}, origin={}, engine=engine) as run,
    ):
        warm = [Stage(f"warm-{number}", {}, LabelShard(pairs, teacher, 0, 64, 1)) for number in range(2 * workers)]
        run.complete(warm)
        name = "labels.parquet"
        stage = Stage(name, {}, work, parts=parts(run.path / name, shards, root=run.path))
        return timed(run.complete, [stage])[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder or hub name")
    parser.add_argument("--kind", choices=("bi", "cross"), default="bi")
    parser.add_argument("--pairs", type=int, default=4 * SHARD_PAIRS, help="how many (default: four shards)")
    parser.add_argument("--file", type=Path, help="a file of pairs; made up if not given")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="labelling-") as temporary:
        folder = Path(temporary)
        pairs = PairSet.read(arguments.file, scores=False) if arguments.file else made_pairs(arguments.pairs)
        pairs = pairs.between(0, arguments.pairs)
        pairs.save(Layout(folder).pairs())
        teacher = ModelRef("teacher", arguments.kind, arguments.model, max_tokens=64, device="cpu")
        seconds = {n: label(folder, teacher, count=len(pairs), workers=n) for n in (1, 2)}
        labels = [(folder / str(n) / "labels.parquet").read_bytes() for n in seconds]
    print(
        json.dumps(
            {
                "model": Path(arguments.model).name,
                "kind": arguments.kind,
                "pairs": len(pairs),
                "shards": -(-len(pairs) // SHARD_PAIRS),
                "seconds": {n: round(time, 1) for n, time in seconds.items()},
                "pairs_per_second": {n: round(len(pairs) / time) for n, time in seconds.items()},
                "ratio": round(seconds[1] / seconds[2], 2),
                "same_bytes": labels[0] == labels[1],
                "cores": os.cpu_count(),
                "load_before": [round(load, 1) for load in os.getloadavg()],
            }
        )
    )


if __name__ == "__main__":
    main()
