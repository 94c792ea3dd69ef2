"""What each step that makes labels better is worth alone and together, before any training.

    python benchmarks/label_steps.py --model bert-mini --data-dir DATA --json label-steps.jsonl

The model labels the pairs of five dev sets (at most --pairs of each, without their labels), each step of the package
is applied, and the labels are compared with the gold scores: Spearman's rho x100 on STS-B and SICK-R, AUC x100 on the
others. Views are averaged in ranks. Word frequencies and common directions come from the very pairs, as in a run.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trans_encoder.data import PairSet, Scores, matched_words, shared_wording
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.directions import without_common_directions
from trans_encoder.encoders.matching import match_tokens
from trans_encoder.encoders.passes import mean_with_dropout
from trans_encoder.evaluation.metrics import auc, spearman
from trans_encoder.teachers.scales import combined

SETS = {"stsb": spearman, "sickr": spearman, "mrpc": auc, "qnli": auc, "qqp": auc}
STEPS = {
    "cosine": ("cosine",),
    "dropout passes averaged": ("passes",),
    "directions removed": ("cleared",),
    "lexical": ("lexical",),
    "bm25": ("bm25",),
    "tokens": ("tokens",),
    "cosine, lexical": ("cosine", "lexical"),
    "cosine, bm25": ("cosine", "bm25"),
    "cosine, tokens": ("cosine", "tokens"),
    "directions removed, lexical": ("cleared", "lexical"),
    "directions removed, bm25": ("cleared", "bm25"),
    "directions removed, tokens": ("cleared", "tokens"),
    "directions removed, lexical, bm25": ("cleared", "lexical", "bm25"),
    "directions removed, lexical, tokens": ("cleared", "lexical", "tokens"),
    "all": ("passes", "cleared", "lexical", "bm25", "tokens"),
}
"""The columns that are averaged by each step."""


def columns_of(model: str, pairs: PairSet, *, passes: int) -> dict[str, Scores]:
    """Score pairs in every way."""
    encoder = BiEncoder.load(model, max_tokens=64)
    texts = pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist()
    return {
        "cosine": encoder.score(pairs),
        "passes": passed(model, pairs, passes=passes),
        "cleared": without_common_directions(encoder, pairs.distinct().sentences, count=3).score(pairs),
        "lexical": shared_wording(*texts),
        "bm25": matched_words(*texts),
        "tokens": match_tokens(encoder, pairs),
    }


def passed(model: str, pairs: PairSet, *, passes: int) -> Scores:
    """Return the mean of several passes with dropout."""
    return mean_with_dropout(BiEncoder.load(model, max_tokens=64, fast=False), pairs, passes=passes)


def measured(columns: Mapping[str, Scores], gold: Scores, name: str) -> dict[str, float]:
    """Return how good the labels of each step are."""
    labels = {
        step: combined({name: columns[name] for name in used}, scale="rank" if len(used) > 1 else "none")
        for step, used in STEPS.items()
    }
    return {step: SETS[name](scores, gold) for step, scores in labels.items()}


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a bi-encoder, or a PLM with mean pooling")
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of tasks in the plain format")
    parser.add_argument("--pairs", type=int, default=400, help="pairs of each dev set at most")
    parser.add_argument("--passes", type=int, default=8, help="passes with dropout")
    parser.add_argument("--json", type=Path, help="append the figures to this file")
    arguments = parser.parse_args()
    found = {}
    for name in SETS:
        dev = PairSet.read(arguments.data_dir / name / "dev.tsv.gz", columns=("sentence1", "sentence2", "score"))
        dev = dev.sample(min(arguments.pairs, len(dev)), seed=0)
        columns = columns_of(arguments.model, dev.without_scores(), passes=arguments.passes)
        found[name] = measured(columns, np.asarray(dev.scores), name)
    if arguments.json:
        with arguments.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"model": Path(arguments.model).name, "scores": found}) + "\n")
    print("| labels | " + " | ".join(SETS) + " | mean |\n| --- |" + " ---: |" * (len(SETS) + 1))
    for step in STEPS:
        scores = [found[name][step] for name in SETS]
        print(f"| {step} | " + " | ".join(f"{score:.2f}" for score in [*scores, np.mean(scores)]) + " |", flush=True)


if __name__ == "__main__":
    main()
