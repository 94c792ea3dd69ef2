"""The time until the published procedure's dev score is reached, ours against sentence-transformers' trainers.

    python benchmarks/time_to_quality.py --model MODEL --data-dir DATA --pairs 8000 --seeds 0,1,2 --json time.json

Published: one cycle of preset `small` with sentence-transformers' trainers, `encode` and `predict` (`published.py`),
timed from loading the model to the last step; its final dev scores are the goal. Ours: a whole run with the defaults
and the same dev set, timed from its call; every validation notes the clock. Only students count, not the start, which
may have the goal's score before anything is done. Judging is part of our time, not of theirs. With `--cross` ours
begins cross-encoders from another model, with `--teacher` it has frozen teachers.

Both sides of a seed can be measured in calls of their own (`--side`), which go on with the same file. On a machine that
has other work the seconds of CPU time are the better measure: give every call one thread (`OMP_NUM_THREADS=1`).
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
SIDES = ("published", "ours")


class Clock:
    """Seconds since it was made: on the wall and of all CPUs."""

    def __init__(self) -> None:
        self._begun = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        wall, cpu = self._begun
        return {"seconds": round(time.perf_counter() - wall, 2), "cpu": round(time.process_time() - cpu, 2)}


def as_published(arguments: argparse.Namespace, pairs: PairSet, dev: PairSet, *, seed: int) -> dict[str, Any]:
    """Run a cycle with sentence-transformers; return its time after each stage and the dev scores that it ends with."""
    plan, clock = cycle.settings(arguments.model), Clock()
    bi = published.load_bi(arguments.model, plan.bi)
    cross = published.load_cross(arguments.model, plan.cross, seed=seed)
    labels = published.score_bi(bi, pairs)
    published.train_cross(cross, pairs.with_scores(labels), plan.cross, seed=seed)
    at_cross = clock.read()
    published.train_bi(bi, pairs.with_scores(published.score_cross(cross, pairs)), plan.bi, seed=seed)
    return {
        **clock.read(),
        "cross trained": at_cross,
        "bi": spearman(published.score_bi(bi, dev), dev.scores),
        "cross": spearman(published.score_cross(cross, dev), dev.scores),
    }


class TimedJudge(DevJudge):
    """The dev set's judge, which notes what every validation finds, and when."""

    clock = Clock()
    seen: list[dict[str, Any]]

    def __call__(self, encoder: Any) -> float:
        score = super().__call__(encoder)
        self.seen.append({"kind": encoder.kind, "score": score, **self.clock.read()})
        return score


def ours(arguments: argparse.Namespace, pairs: PairSet, judge: TimedJudge, *, seed: int) -> dict[str, Any]:
    """Do a run; return its validations, the start's apart from the students', and its time as a whole."""
    PairTokeniser.forget()
    member = f"{arguments.model}={arguments.cross}" if arguments.cross else arguments.model
    settings = parse_overrides(arguments.set) | {"seed": seed, "teachers": arguments.teacher}
    TimedJudge.clock, TimedJudge.seen = Clock(), []
    with tempfile.TemporaryDirectory() as folder:
        result = run(make_config([member], overrides=settings), pairs, out=folder, judge=judge)
        whole = TimedJudge.clock.read()
    (kept,) = result.members.values()
    start, *seen = TimedJudge.seen
    return {**whole, "bi": kept.bi.score, "cross": kept.cross and kept.cross.score, "start": start, "seen": seen}


def compare(goal: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
    """Return when ours reached the goal, as a share of the published time, and the best score that it found."""
    result: dict[str, Any] = {}
    for kind in KINDS:
        seen = [each for each in mine["seen"] if each["kind"] == kind]
        reached = next((each for each in seen if each["score"] >= goal[kind]), None)
        shares = {unit: reached and round(reached[unit] / goal[unit], 3) for unit in ("seconds", "cpu")}
        result[kind] = {**shares, "best": max(each["score"] for each in seen)}
    return {**result, "whole": {unit: round(mine[unit] / goal[unit], 3) for unit in ("seconds", "cpu")}}


def show(result: dict[str, Any]) -> None:
    """Print one line for each seed and kind."""
    columns = (
        "seed",
        "kind",
        "start",
        "published",
        "best of ours",
        "reached: share of time",
        "of CPU time",
        "whole run",
    )
    table = Table(*columns)
    for seed, each in result["seeds"].items():
        if "compared" not in each:
            continue
        whole = each["compared"]["whole"]
        for kind in KINDS:
            start, mine = each["ours"]["start"]["score"], each["compared"][kind]
            shares = [str(mine[unit] or "not reached") for unit in ("seconds", "cpu")]
            scores = f"{start:.2f}" if kind == "bi" else "", f"{each['published'][kind]:.2f}", f"{mine['best']:.2f}"
            table.add_row(seed, kind, *scores, *shares, f"{whole['seconds']} / {whole['cpu']}")
    Console(width=120).print(table)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a bi-encoder: folder or hub name")
    parser.add_argument("--cross", help="what our cross-encoders start from, if not from what a run finds by itself")
    parser.add_argument("--teacher", action="append", default=[], help="a frozen teacher of ours; repeat for several")
    parser.add_argument("--set", action="append", default=[], help="a setting of ours, as of `trans-encoder train`")
    parser.add_argument("--data-dir", required=True, help="folder of tasks in the plain format")
    parser.add_argument("--pairs", type=int, default=8000, help="pairs of the STS pool (default: %(default)s)")
    parser.add_argument("--seeds", default="0", help="seeds with commas between them (default: %(default)s)")
    parser.add_argument("--side", choices=SIDES, action="append", help="measure one side only")
    parser.add_argument("--json", type=Path, default=Path("time.json"), help="where the numbers go and come from")
    arguments = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()

    task = load_task("sts", data_dir=arguments.data_dir)
    pairs, dev = task.pairs.sample(arguments.pairs, seed=0), task.dev
    result: dict[str, Any] = {"model": Path(arguments.model).name, "pairs": arguments.pairs, "seeds": {}}
    if arguments.json.exists():
        result["seeds"] = json.loads(arguments.json.read_text(encoding="utf-8"))["seeds"]
    for seed in map(int, arguments.seeds.split(",")):
        sides = result["seeds"].setdefault(str(seed), {})
        for side in arguments.side or SIDES:
            if side == "published":
                sides[side] = as_published(arguments, pairs, dev.pairs, seed=seed)
            else:
                sides[side] = ours(arguments, pairs, TimedJudge(dev), seed=seed)
        if set(SIDES) <= set(sides):
            sides["compared"] = compare(sides["published"], sides["ours"])
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        show(result)


if __name__ == "__main__":
    main()
