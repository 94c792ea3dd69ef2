"""The time until the published procedure's dev score is reached, ours against sentence-transformers' trainers.

    python benchmarks/time_to_quality.py --model MODEL --data-dir DATA --pairs 8000 --seeds 3 --json time.json

Published: one cycle of preset `small` with sentence-transformers' trainers, `encode` and `predict` (`published.py`),
timed from loading the model to the last step; its final dev scores are the goal. Ours: a run with the defaults and the
same dev set, timed from its call; every validation notes the clock. Judging is part of our time, not of theirs. With
`--cross` ours begins cross-encoders from another model, with `--teacher` it has frozen teachers.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import cycle
import published
import transformers
from rich.console import Console
from rich.table import Table

from trans_encoder import PairSet
from trans_encoder.config import make_config, parse_overrides
from trans_encoder.data.tasks import load_task
from trans_encoder.distill.judges import DevJudge
from trans_encoder.distill.run import run
from trans_encoder.encoders.tokens import PairTokeniser
from trans_encoder.evaluation.metrics import spearman

KINDS = ("bi", "cross")


def as_published(arguments: argparse.Namespace, pairs: PairSet, dev: PairSet, *, seed: int) -> dict[str, Any]:
    """Run a cycle with sentence-transformers; return its seconds and the dev scores that it ends with."""
    plan = cycle.settings(arguments.model)
    begun = time.perf_counter()
    bi = published.load_bi(arguments.model, plan.bi)
    cross = published.load_cross(arguments.model, plan.cross, seed=seed)
    published.train_cross(cross, pairs.with_scores(published.score_bi(bi, pairs)), plan.cross, seed=seed)
    published.train_bi(bi, pairs.with_scores(published.score_cross(cross, pairs)), plan.bi, seed=seed)
    seconds = time.perf_counter() - begun
    return {
        "seconds": seconds,
        "bi": spearman(published.score_bi(bi, dev), dev.scores),
        "cross": spearman(published.score_cross(cross, dev), dev.scores),
    }


class Clock:
    """Notes what every validation finds, and when."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.begun = time.perf_counter()

    def note(self, kind: str, score: float) -> None:
        self.seen.append({"kind": kind, "score": score, "seconds": time.perf_counter() - self.begun})


class TimedJudge(DevJudge):
    """The dev set's judge, with a clock."""

    clock = Clock()

    def __call__(self, encoder: Any) -> float:
        score = super().__call__(encoder)
        self.clock.note(encoder.kind, score)
        return score


def ours(arguments: argparse.Namespace, pairs: PairSet, judge: TimedJudge, *, seed: int) -> list[dict[str, Any]]:
    """Do a run; return its validations."""
    PairTokeniser.forget()
    member = f"{arguments.model}={arguments.cross}" if arguments.cross else arguments.model
    settings = parse_overrides(arguments.set) | {"cycles": 1, "seed": seed, "teachers": arguments.teacher}
    TimedJudge.clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        run(make_config([member], overrides=settings), pairs, out=folder, judge=judge)
    return TimedJudge.clock.seen


def compare(goal: dict[str, Any], seen: list[dict[str, Any]]) -> dict[str, Any]:
    """Return when ours reached the goal, as a share of the published time, and the best score that it found."""
    result: dict[str, Any] = {"published": goal, "seen": seen}
    for kind in KINDS:
        mine = [each for each in seen if each["kind"] == kind]
        reached = next((each["seconds"] for each in mine if each["score"] >= goal[kind]), None)
        result[kind] = {
            "share": None if reached is None else round(reached / goal["seconds"], 3),
            "best": max(each["score"] for each in mine),
        }
    result["whole"] = round(max(each["seconds"] for each in seen) / goal["seconds"], 3)
    return result


def show(result: dict[str, Any]) -> None:
    """Print one line for each seed and kind."""
    table = Table("seed", "kind", "published dev score", "reached after, share of its time", "best of ours")
    for seed, each in enumerate(result["runs"]):
        for kind in KINDS:
            goal, mine = each["published"][kind], each[kind]
            table.add_row(str(seed), kind, f"{goal:.2f}", str(mine["share"] or "not reached"), f"{mine['best']:.2f}")
    Console().print(table)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a bi-encoder: folder or hub name")
    parser.add_argument("--cross", help="what our cross-encoders start from, if not from what a run finds by itself")
    parser.add_argument("--teacher", action="append", default=[], help="a frozen teacher of ours; repeat for several")
    parser.add_argument("--set", action="append", default=[], help="a setting of ours, as of `trans-encoder train`")
    parser.add_argument("--data-dir", required=True, help="folder of tasks in the plain format")
    parser.add_argument("--pairs", type=int, default=8000, help="pairs of the STS pool (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--json", type=Path, default=Path("time.json"), help="where the numbers go")
    arguments = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()

    task = load_task("sts", data_dir=arguments.data_dir)
    pairs, dev = task.pairs.sample(arguments.pairs, seed=0), task.dev
    runs = []
    for seed in range(arguments.seeds):
        seen = ours(arguments, pairs, TimedJudge(dev), seed=seed)
        runs.append(compare(as_published(arguments, pairs, dev.pairs, seed=seed), seen))
        result = {"model": Path(arguments.model).name, "pairs": arguments.pairs, "runs": runs}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        show(result)


if __name__ == "__main__":
    main()
