"""Time our cycle with and without single parts of `fast/`, in turn in one process.

    python benchmarks/parts.py --model MODEL --data-dir DATA --pairs 2000 --rounds 3

A part earns its place with 5 % of a whole cycle. The order of the variants rotates from round to round.
"""

import argparse
import json
import statistics
from contextlib import nullcontext
from typing import Any
from unittest import mock

import cycle
import ours
import transformers
from measuring import timed

from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import load_task
from trans_encoder.encoders.tokens import PairTokeniser
from trans_encoder.fast import matmul, runner

WITHOUT = {
    "all": nullcontext,
    "without matmul": lambda: mock.patch.object(matmul, "_capability", return_value=""),
    "without embeddings": lambda: mock.patch.object(runner, "word_embeddings", return_value=None),
}


def one_cycle(model: str, pairs: PairSet, *, bi_epochs: int) -> dict[str, float]:
    """Run one cycle of ours; return the seconds of each stage."""
    plan = cycle.settings(model, bi_epochs=bi_epochs)
    PairTokeniser.forget()
    bi, cross = ours.load_bi(model, plan.bi), ours.load_cross(model, plan.cross, seed=0)
    seconds: dict[str, float] = {}
    labels, seconds["bi labelling"] = timed(ours.score_bi, bi, pairs)
    _, seconds["cross training"] = timed(ours.train_cross, cross, pairs.with_scores(labels), plan.cross, seed=0)
    labels, seconds["cross labelling"] = timed(ours.score_cross, cross, pairs)
    _, seconds["bi training"] = timed(ours.train_bi, bi, pairs.with_scores(labels), plan.bi, seed=0)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a bi-encoder: folder or hub name")
    parser.add_argument("--data-dir", required=True, help="folder of tasks in the plain format")
    parser.add_argument("--pairs", type=int, default=2000, help="pairs of the STS pool (default: 2000)")
    parser.add_argument("--bi-epochs", type=int, default=3, help="epochs of bi training (default: 3, as preset small)")
    parser.add_argument("--rounds", type=int, default=3, help="cycles of each variant (default: 3)")
    arguments = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()

    pairs = load_task("sts", data_dir=arguments.data_dir).pairs.sample(arguments.pairs, seed=0)
    names = list(WITHOUT)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(arguments.rounds):
        for place in range(len(names)):
            name = names[(place + turn) % len(names)]
            with WITHOUT[name]():
                runs[name].append(one_cycle(arguments.model, pairs, bi_epochs=arguments.bi_epochs))
            print(name, json.dumps({stage: round(each, 2) for stage, each in runs[name][-1].items()}), flush=True)
    totals = {name: [sum(each.values()) for each in several] for name, several in runs.items()}
    result: dict[str, Any] = {
        name: {
            "seconds": [round(total, 1) for total in totals[name]],
            "of_median": round(statistics.median(totals[name]) / statistics.median(totals["all"]), 3),
            "of_best": round(min(totals[name]) / min(totals["all"]), 3),
        }
        for name in names
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
