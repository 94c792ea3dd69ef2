"""What a cycle costs, from measured throughput: time, memory and storage for any number of pairs; what gives out first.

    OMP_NUM_THREADS=1 python benchmarks/cost_model.py --models MINI SMALL BASE --check 4000 8000 16000

For each model every stage is timed at two small sizes, which gives its fixed cost and its pairs a second. The time at
the sizes of `--check` is predicted from these alone, then measured. The last tables put the pairs a second to use for
`--predict` pairs on `--devices` devices, each `--times-as-fast` as this one. Writes everything as JSON.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import transformers
from made_pairs import made_pairs
from measuring import timed
from rich.console import Console
from rich.table import Table

from trans_encoder.config import RunConfig, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.encoders import BiEncoder, CrossEncoder, Encoder
from trans_encoder.encoders.tokens import PairTokeniser
from trans_encoder.encoders.training import TrainingOptions, train

CALIBRATION = (512, 2048)
GIB = 2**30


@dataclass(frozen=True)
class Line:
    """Seconds of a stage: a fixed part, and a rate in pairs a second."""

    fixed: float
    pairs_per_second: float

    @classmethod
    def through(cls, seconds: dict[int, float]) -> "Line":
        (few, begun), (many, ended) = sorted(seconds.items())
        rate = (many - few) / max(ended - begun, 1e-9)
        return cls(max(begun - few / rate, 0.0), rate)

    def seconds(self, pairs: int) -> float:
        return self.fixed + pairs / self.pairs_per_second


def stages(encoders: dict[str, Encoder], config: RunConfig) -> dict[str, tuple[Callable[[PairSet], Any], int]]:
    """Return the work of each stage on some pairs, and how many epochs of it a cycle does."""

    def training(kind: str) -> Callable[[PairSet], Any]:
        plan = (config.cross if kind == "cross" else config.bi).model_copy(update={"epochs": 1, "dev_steps": 10**9})
        both = kind == "cross" and config.both_orders

        def work(pairs: PairSet) -> None:
            labelled = pairs.with_scores(np.linspace(0, 1, len(pairs)))
            with TemporaryDirectory(prefix="cost-") as folder:
                options = TrainingOptions(folder=Path(folder))
                train(encoders[kind], labelled, plan=plan, options=options, both_orders=both)

        return work

    return {
        "label, bi": (encoders["bi"].score, 1),
        "train, cross": (training("cross"), config.cross.epochs),
        "label, cross": (encoders["cross"].score, 1),
        "train, bi": (training("bi"), config.bi.epochs),
    }


def clocked(work: Callable[[PairSet], Any], count: int, *, seed: int) -> float:
    """Time a stage on fresh pairs, tokenising included."""
    pairs = made_pairs(count, seed=seed)
    PairTokeniser.forget()
    return timed(work, pairs)[1]


def measure(model: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Calibrate every stage of a model, and check the predictions at larger sizes."""
    config = make_config([model], preset=arguments.preset, overrides={"device": "cpu"})
    encoders = {
        "bi": BiEncoder.load(model, max_tokens=config.bi.given_tokens, device="cpu"),
        "cross": CrossEncoder.load(model, max_tokens=config.cross.given_tokens, device="cpu"),
    }
    lines, checks, epochs = {}, {}, {}
    for name, (work, epochs[name]) in stages(encoders, config).items():
        clocked(work, 64, seed=0)  # the first call pays for everything that is set up once
        lines[name] = Line.through({count: clocked(work, count, seed=1) for count in CALIBRATION})
        checks[name] = {
            count: {
                "predicted": round(lines[name].seconds(count), 1),
                "measured": round(clocked(work, count, seed=2), 1),
            }
            for count in arguments.check
        }
    weights = sum(each.numel() for each in encoders["bi"].model.parameters()) * 4
    return {
        "model": Path(model).name,
        "weights_bytes": weights,
        # The trainer's state holds the weights, the two moments of Adam, and the best weights so far.
        "checkpoint_bytes": 4 * weights,
        "pairs_per_second": {name: round(line.pairs_per_second) for name, line in lines.items()},
        "epochs": epochs,
        "checks": checks,
    }


def bytes_per_pair() -> dict[str, float]:
    """Measure what a pair takes: on disk as pairs and as labels of one teacher, in memory in a training."""
    count = 20_000
    pairs = made_pairs(count)
    scores = np.random.default_rng(0).random(count, dtype=np.float32)
    with TemporaryDirectory(prefix="cost-") as folder:
        place = Path(folder)
        pairs.save(place / "pairs.arrow")
        PseudoLabels(pairs, scores, {"teacher": scores}, {}).save(place / "labels.parquet")
        sizes = {name: (place / name).stat().st_size / count for name in ("pairs.arrow", "labels.parquet")}
    # Numbers a pair while a cross-encoder's lengths are found: two places, also swapped (4 bytes each);
    # starts and lengths of two sentences (8 each); labels as read, as doubles and for both orders; and for both orders
    # two lengths, the shorter, the longer and what is kept of each (8 each).
    return {**sizes, "memory of a rank": 4 * 4 + 2 * 2 * 8 + (4 + 4 + 8 + 2 * 4) + 2 * 9 * 8}


def predict(result: dict[str, Any], each: dict[str, float], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Say what one cycle of one member takes for every number of pairs, and what gives out first."""
    rows = []
    for count in arguments.predict:
        speed = arguments.devices * arguments.times_as_fast
        hours = {
            name: count * result["epochs"][name] / rate / speed / 3600
            for name, rate in result["pairs_per_second"].items()
        }
        storage = count * (each["pairs.arrow"] + 2 * each["labels.parquet"])
        storage += 2 * result["weights_bytes"] + 2 * result["checkpoint_bytes"]
        memory = count * each["memory of a rank"]
        longest = max(hours, key=lambda name: hours[name])
        first = f"time: {longest} ({hours[longest] / sum(hours.values()):.0%})"
        if memory * arguments.ranks_per_node > arguments.node_memory * GIB:
            first = f"memory: {arguments.ranks_per_node} ranks need more than {arguments.node_memory} GiB a node"
        rows.append(
            {
                "pairs": count,
                "hours": {name: round(value, 2) for name, value in hours.items()},
                "cycle_hours": round(sum(hours.values()), 2),
                "storage_gib": round(storage / GIB, 1),
                "rank_memory_gib": round(memory / GIB, 1),
                "first_bottleneck": first,
            }
        )
    return rows


def show(results: list[dict[str, Any]]) -> None:
    """Print the checks and the predictions."""
    for result in results:
        table = Table("stage", "pairs a second", "pairs", "predicted s", "measured s", "off", title=result["model"])
        for name, sizes in result["checks"].items():
            for count, found in sizes.items():
                off = found["predicted"] / max(found["measured"], 0.1) - 1
                values = (result["pairs_per_second"][name], count, found["predicted"], found["measured"])
                table.add_row(name, *(f"{value:,}" for value in values), f"{off:+.0%}")
        Console().print(table)
        table = Table("pairs", "cycle, hours", "storage, GiB", "memory of a rank, GiB", "first bottleneck")
        for row in result["predictions"]:
            values = (row["pairs"], row["cycle_hours"], row["storage_gib"], row["rank_memory_gib"])
            table.add_row(*(f"{value:,}" for value in values), row["first_bottleneck"])
        Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, help="bi-encoders of several sizes")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--check", type=int, nargs="+", default=[4000, 8000, 16000], help="sizes to measure")
    parser.add_argument("--predict", type=int, nargs="+", default=[10**6, 10**8, 10**9], help="sizes to predict")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--times-as-fast", type=float, default=1.0, help="a device against a thread of this machine")
    parser.add_argument("--ranks-per-node", type=int, default=1)
    parser.add_argument("--node-memory", type=int, default=64, help="GiB")
    parser.add_argument("--json", type=Path, default=Path("cost_model.json"))
    arguments = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    each = bytes_per_pair()
    results = []
    for model in arguments.models:
        result = measure(model, arguments)
        results.append({**result, "bytes_per_pair": each, "predictions": predict(result, each, arguments)})
    arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    show(results)


if __name__ == "__main__":
    main()
