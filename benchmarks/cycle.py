"""One cycle of self-distillation, as published and ours, stage by stage in one process.

    make bench BENCH_ARGS="--model MODEL --data-dir DATA --pairs 8000 --json cycle.json"
    make bench BENCH_ARGS="--model MODEL --data-dir DATA --pairs 2000 --preset paper-sts --growth= --json paper.json"

Each stage runs in both variants, and which of them goes first changes from stage to stage. Ratios above 1 mean that
ours is faster. Writes the numbers as JSON and, beside it, a plot.
"""

import argparse
import json
import os
import platform
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import numpy as np
import ours
import published
import torch
import transformers
from measuring import exponent, forward_flops, matmul_rate, peak_memory, timed
from rich.console import Console
from rich.table import Table

from trans_encoder.config import PRESETS, RunConfig, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import load_task
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.tokens import PairTokeniser
from trans_encoder.evaluation.metrics import spearman

VARIANTS: dict[str, ModuleType] = {"published": published, "ours": ours}
LENGTHS = {"bi.max_tokens": 32, "cross.max_tokens": 64}
"""Fixed, as in the paper, so that both variants cut texts alike and runs on different pairs can be compared."""
STAGES = ("bi labelling", "cross training", "cross labelling", "bi training", "dev evaluation")


def settings(model: str, *, preset: str = "small", bi_epochs: int | None = None) -> RunConfig:
    """Return the settings of a cycle: a preset's with fixed lengths."""
    return make_config(
        [model], preset=preset, overrides=LENGTHS if bi_epochs is None else {"bi.epochs": bi_epochs, **LENGTHS}
    )


def run_cycle(arguments: argparse.Namespace, pairs: PairSet, dev: PairSet, *, seed: int, flip: bool) -> dict[str, Any]:
    """Run one cycle of both variants, stage by stage; return seconds, peak memory and dev scores of each."""
    plan = settings(arguments.model, preset=arguments.preset, bi_epochs=arguments.bi_epochs)
    seconds: dict[str, dict[str, float]] = {stage: {} for stage in STAGES}
    memory = dict.fromkeys(VARIANTS, 0)
    state: dict[str, dict[str, Any]] = {variant: {} for variant in VARIANTS}
    steps = {
        "bi labelling": lambda v, s: s.update(labels=v.score_bi(s["bi"], pairs)),
        "cross training": lambda v, s: v.train_cross(s["cross"], pairs.with_scores(s["labels"]), plan.cross, seed=seed),
        "cross labelling": lambda v, s: s.update(labels=v.score_cross(s["cross"], pairs)),
        "bi training": lambda v, s: v.train_bi(s["bi"], pairs.with_scores(s["labels"]), plan.bi, seed=seed),
        "dev evaluation": lambda v, s: s.update(
            dev={
                "bi": spearman(v.score_bi(s["bi"], dev), dev.scores),
                "cross": spearman(v.score_cross(s["cross"], dev), dev.scores),
            }
        ),
    }
    PairTokeniser.forget()
    for variant, module in VARIANTS.items():
        state[variant]["bi"] = module.load_bi(arguments.model, plan.bi)
        state[variant]["cross"] = module.load_cross(arguments.model, plan.cross, seed=seed)
    for number, (stage, step) in enumerate(steps.items()):
        order = sorted(VARIANTS, reverse=bool(number % 2) ^ flip)
        for variant in order:
            with peak_memory() as peak:
                _, seconds[stage][variant] = timed(step, VARIANTS[variant], state[variant])
            memory[variant] = max(memory[variant], peak())
    return {"seconds": seconds, "peak_memory_bytes": memory, "dev": {v: state[v]["dev"] for v in VARIANTS}}


def useful_work(arguments: argparse.Namespace, pairs: PairSet) -> dict[str, dict[str, float]]:
    """Return the useful tokens and floating-point operations of each stage: without padding."""
    config = settings(arguments.model, preset=arguments.preset, bi_epochs=arguments.bi_epochs)
    bi = BiEncoder.load(arguments.model, max_tokens=config.bi.max_tokens)
    cross = CrossEncoder.load(arguments.model, max_tokens=config.cross.max_tokens)
    tokens = bi.tokeniser(pairs, max_tokens=config.bi.max_tokens)
    limit = config.bi.max_tokens - bi.layout.extra
    sentences = np.minimum(tokens.tokens.lengths, limit) + bi.layout.extra
    pair_lengths = cross.lengths(cross.tokeniser(pairs, max_tokens=config.cross.max_tokens))
    each_side = sentences[tokens.index].reshape(-1)
    work = {
        "bi labelling": (sentences, 1, bi),
        "cross training": (pair_lengths, 3 * 2 * config.cross.epochs, cross),
        "cross labelling": (pair_lengths, 1, cross),
        "bi training": (each_side, 3 * config.bi.epochs, bi),
    }
    return {
        stage: {
            "tokens": float(lengths.sum() * (times / 3 if times > 1 else 1)),
            "flops": forward_flops(encoder, lengths) * times,
        }
        for stage, (lengths, times, encoder) in work.items()
    }


def growth(arguments: argparse.Namespace, pool: PairSet) -> dict[str, Any]:
    """Time our labelling and training over growing numbers of pairs."""
    config = settings(arguments.model, preset=arguments.preset, bi_epochs=1)
    sizes = [int(size) for size in arguments.growth.split(",") if size]
    seconds: dict[str, list[float]] = {stage: [] for stage in STAGES[:-1]}
    for size in sizes:
        PairTokeniser.forget()
        pairs = pool.sample(size, seed=0)
        bi, cross = (
            ours.load_bi(arguments.model, config.bi),
            ours.load_cross(arguments.model, config.cross, seed=0),
        )
        labels, time = timed(ours.score_bi, bi, pairs)
        seconds["bi labelling"].append(time)
        labelled = pairs.with_scores(labels)
        seconds["cross training"].append(timed(ours.train_cross, cross, labelled, config.cross, seed=0)[1])
        seconds["cross labelling"].append(timed(ours.score_cross, cross, pairs)[1])
        seconds["bi training"].append(timed(ours.train_bi, bi, labelled, config.bi, seed=0)[1])
    total = [sum(times) for times in zip(*seconds.values(), strict=True)]
    return {
        "pairs": sizes,
        "seconds": {**seconds, "cycle": total},
        "exponents": {stage: round(exponent(sizes, times), 3) for stage, times in {**seconds, "cycle": total}.items()},
    }


def summarise(runs: list[dict[str, Any]], work: dict[str, Any], rate: float) -> dict[str, Any]:
    """Put the runs of all seeds together: ratios of total seconds, and our share of the machine's rate."""
    total = {s: {v: sum(run["seconds"][s][v] for run in runs) for v in VARIANTS} for s in STAGES}
    cycle = {v: sum(total[s][v] for s in STAGES) for v in VARIANTS}
    stages = {
        stage: {
            "ratio": round(total[stage]["published"] / total[stage]["ours"], 2),
            **(
                {
                    f"{variant}_useful_tokens_per_second": round(
                        len(runs) * work[stage]["tokens"] / total[stage][variant]
                    )
                    for variant in VARIANTS
                }
                | {
                    f"{variant}_share_of_matmul_rate": round(
                        len(runs) * work[stage]["flops"] / total[stage][variant] / rate, 3
                    )
                    for variant in VARIANTS
                }
                if stage in work
                else {}
            ),
        }
        for stage in STAGES
    }
    dev = {
        v: {k: round(float(np.mean([run["dev"][v][k] for run in runs])), 2) for k in ("bi", "cross")} for v in VARIANTS
    }
    return {
        "cycle_ratio": round(cycle["published"] / cycle["ours"], 2),
        "stages": stages,
        "dev_score": dev,
        "peak_memory_bytes": {v: max(run["peak_memory_bytes"][v] for run in runs) for v in VARIANTS},
        "matmul_gflops": round(rate / 1e9, 1),
    }


def plot(result: dict[str, Any], path: Path) -> None:
    """Draw the ratio of each stage."""
    import matplotlib.pyplot as plt

    names = [*STAGES, "cycle"]
    ratios = [result["stages"][stage]["ratio"] for stage in STAGES] + [result["cycle_ratio"]]
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    bars = axes.barh(names[::-1], ratios[::-1], color="#0072B2")
    axes.bar_label(bars, fmt="%.1fx", padding=3)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xlabel="times as fast as published", title=f"{result['model']}, {result['pairs']:,} pairs")
    figure.savefig(path)
    plt.close(figure)


def write(result: dict[str, Any], path: Path) -> None:
    """Write the numbers and, beside them, the plot."""
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    plot(result, path.with_suffix(".svg"))


def show(result: dict[str, Any]) -> None:
    """Print the result as a table."""
    table = Table("stage", "times as fast", "useful tokens/s, published", "ours", "of matmul rate, published", "ours")
    for stage, entry in result["stages"].items():
        table.add_row(stage, *(str(value) for value in entry.values()))
    table.add_row("whole cycle", str(result["cycle_ratio"]))
    Console().print(table)
    Console().print(
        {name: result[name] for name in ("dev_score", "peak_memory_bytes", "matmul_gflops", "growth") if name in result}
    )


def parser_of(description: str | None, *, pairs: int) -> argparse.ArgumentParser:
    """Return a parser of what every timing of a cycle takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a bi-encoder: folder or hub name")
    parser.add_argument("--data-dir", required=True, help="folder of tasks in the plain format")
    parser.add_argument("--pairs", type=int, default=pairs, help="pairs of the STS pool (default: %(default)s)")
    parser.add_argument("--preset", choices=PRESETS, default="small", help="the settings (default: %(default)s)")
    parser.add_argument("--bi-epochs", type=int, help="epochs of bi training (default: the preset's)")
    return parser


def main() -> None:
    """Run the benchmark from the command line."""
    parser = parser_of(__doc__, pairs=8000)
    parser.add_argument("--seeds", type=int, default=1, help="cycles with different seeds (default: 1)")
    parser.add_argument("--growth", default="1000,4000,16000", help="numbers of pairs to time; empty: none")
    parser.add_argument("--json", type=Path, default=Path("cycle.json"), help="where the numbers go")
    arguments = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()

    task = load_task("sts", data_dir=arguments.data_dir)
    pairs, dev = task.pairs.sample(arguments.pairs, seed=0), task.dev.pairs
    work, rate = useful_work(arguments, pairs), matmul_rate()
    runs: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        runs.append(run_cycle(arguments, pairs, dev, seed=seed, flip=bool(seed % 2)))
        rate = max(rate, matmul_rate())
        result = summarise(runs, work, rate) | {
            "model": Path(arguments.model).name,
            "pairs": arguments.pairs,
            "preset": arguments.preset,
            "bi_epochs": settings(arguments.model, preset=arguments.preset, bi_epochs=arguments.bi_epochs).bi.epochs,
            "seeds": len(runs),
            "threads": torch.get_num_threads(),
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "runs": runs,
        }
        # After each seed: what was measured is not lost if the rest is not waited for.
        write(result, arguments.json)
    if arguments.growth:
        result["growth"] = growth(arguments, task.pairs)
        write(result, arguments.json)
    show(result)


if __name__ == "__main__":
    main()
