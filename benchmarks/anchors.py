"""What do labels anchored to the start do for weak and strong starts?

    python benchmarks/anchors.py --model START=PLM --data-dir DATA --pairs 2000 --seeds 3 --json anchors.jsonl
    python benchmarks/anchors.py --show anchors.jsonl

For every seed a cross-encoder learns from the start's scores. Then, for every weight: how good is the mixture of the
start's and the cross-encoder's scores, and how good the bi-encoder that learns from it? Checkpoints are chosen without
labels; those of the STS test sets are used to evaluate only.
"""

import argparse
import json
import os
import tempfile
from collections import defaultdict
from functools import reduce
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import numpy as np
import transformers
from measuring import sts_tests

from trans_encoder import CrossEncoder, PairSet, RunConfig, TestSet, label, load_task
from trans_encoder.config import make_config
from trans_encoder.distill.judges import LabelFreeJudge, hold_out
from trans_encoder.distill.labels import anchored
from trans_encoder.distill.team import assemble, resolve_members
from trans_encoder.encoders.training import TrainingOptions, train
from trans_encoder.evaluation.evaluate import measure
from trans_encoder.evaluation.metrics import spearman
from trans_encoder.teachers import Teacher

Row = dict[str, Any]

_WEIGHTS = (0.0, 0.3, 0.5, 0.7)


def collect(config: RunConfig, pairs: PairSet, tests: dict[str, TestSet], *, weights: list[float], seed: int) -> Row:
    """Teach one cross-encoder, and a bi-encoder at each weight; return what every one of them scores."""
    member = assemble(resolve_members(config)[0])[0]
    training, held_out = hold_out(pairs, seed=seed)
    judge = LabelFreeJudge.of(held_out, seed=seed)
    first = label(training, [member.start])
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingOptions(Path(folder, "cross"), seed=seed, judge=judge)
        student = member.plm.load(seed=seed)
        cross = train(student, first.labelled, plan=config.cross, options=options, both_orders=True).encoder
        assert isinstance(cross, CrossEncoder)
        second = label(training, [cross])
        bis = {}
        for weight in weights:
            options = TrainingOptions(Path(folder, f"bi-{weight}"), seed=seed, judge=judge)
            labels = anchored(second, first, weight=weight)
            bis[weight] = train(member.start.load(), labels.labelled, plan=config.bi, options=options)
    old, new = _scores(member.start, tests), _scores(cross, tests)
    start = member.start.load()
    return {
        "model": member.name,
        "pairs": len(pairs),
        "seed": seed,
        "start": _average(old, tests),
        "mixture": {weight: _average((1 - weight) * new + weight * old, tests) for weight in _WEIGHTS},
        "bi": {weight: _average(_scores(each.encoder, tests), tests) for weight, each in bis.items()},
        "judged": {weight: each.best_score for weight, each in bis.items()},
        "drift": {weight: _agreement(each.encoder, start, held_out) for weight, each in bis.items()},
        "cross agreement": _agreement(cross, start, held_out),
        "start judged": judge(start),
    }


def _agreement(one: Teacher, other: Teacher, pairs: PairSet) -> float:
    return spearman(one.score(pairs), other.score(pairs))


def _scores(encoder: Teacher, tests: dict[str, TestSet]) -> np.ndarray:
    pairs = reduce(PairSet.concat, (test.pairs.without_scores() for test in tests.values()))
    return np.asarray(encoder.score(pairs), dtype=float)


def _average(scores: np.ndarray, tests: dict[str, TestSet]) -> float:
    parts = np.split(scores, np.cumsum([len(test.pairs) for test in tests.values()])[:-1])
    return float(np.mean([measure(part, test) for part, test in zip(parts, tests.values(), strict=True)]))


def show(rows: list[Row]) -> None:
    """Print means and standard deviations over the seeds, a table for each start."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["model"]].append(row)
    for number, (name, group) in enumerate(groups.items()):
        print(("\n" if number else "") + f"### {name}: start {group[0]['start']:.2f}, {len(group)} seeds\n")
        print("| weight of the start | labels of the bi-encoder | bi-encoder | judged without labels |")
        print("| --- | ---: | ---: | ---: |")
        for weight in group[0]["mixture"]:
            found = [row[what].get(weight) for what in ("mixture", "bi", "judged") for row in group]
            cells = [_mean(found[at : at + len(group)]) for at in range(0, len(found), len(group))]
            print(f"| {weight} | " + " | ".join(cells) + " |")
        print(f"\nThe start itself is judged {_mean([row['start judged'] for row in group])}.")


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{np.mean(known):.2f} ± {np.std(known, ddof=1) if len(known) > 1 else 0:.2f}" if known else ""


def main() -> None:
    """Collect or show from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="BI[=PLM]", help="the start: a bi-encoder and its cross-encoder's PLM")
    parser.add_argument("--data-dir", help="folder of tasks in the plain format")
    parser.add_argument("--pairs", type=int, default=2000, help="pairs of the STS pool (default: 2000)")
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.5], help="weights to train bi-encoders at")
    parser.add_argument("--test-pairs", type=int, default=1000, help="most pairs of each test set (default: 1000)")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds (default: 3)")
    parser.add_argument("--json", type=Path, default=Path("anchors.jsonl"), help="where the lines are added")
    parser.add_argument("--show", type=Path, help="print the tables of this file instead of collecting")
    arguments = parser.parse_args()
    if arguments.show:
        show([json.loads(line) for line in arguments.show.read_text("utf-8").splitlines()])
        return
    if not (arguments.model and arguments.data_dir):
        parser.error("give --model and --data-dir, or --show FILE")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = make_config([arguments.model], overrides={})
    pool, tests = (
        load_task("sts", data_dir=arguments.data_dir).pairs,
        sts_tests(arguments.data_dir, most=arguments.test_pairs),
    )
    for seed in range(arguments.seeds):
        pairs = pool.sample(arguments.pairs, seed=seed)
        row = collect(config, pairs, tests, weights=arguments.weights, seed=seed)
        with arguments.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


if __name__ == "__main__":
    main()
