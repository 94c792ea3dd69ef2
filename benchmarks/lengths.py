"""Which length should a model be saved with: that of its training, or its own?

    python benchmarks/lengths.py --teacher all-MiniLM-L6-v2 --student bert-mini --data-dir DATA

A bi-encoder and a cross-encoder learn the teacher's cosines of STS pairs cut to 32 and 64 tokens. Both are evaluated
on long texts, at the length of the training, at twice and four times that, and at the model's own. A long text is
several STS-B test sentences joined; its partner is their partners joined, and the gold is the mean of their scores.
"""

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import numpy as np
import transformers

from trans_encoder import BiEncoder, CrossEncoder, PairSet, TestSet, evaluate, load_task
from trans_encoder.config import TrainingPlan
from trans_encoder.encoders.lengths import count_cuts
from trans_encoder.encoders.training import TrainingOptions, train

COMMON = {"epochs": 2, "dropout": 0.0}
PLANS = {
    "bi": TrainingPlan(loss="mse", batch_size=64, learning_rate=1e-4, max_tokens=32, **COMMON),
    "cross": TrainingPlan(loss="bce", batch_size=32, learning_rate=5e-5, max_tokens=64, **COMMON),
}


def joined(test: TestSet, *, sentences: int, count: int) -> TestSet:
    """Make long pairs: each side joins the sentences of several pairs, and the gold is the mean of their scores."""
    rng, rows = np.random.default_rng(0), list(test.pairs.rows())
    drawn = [[rows[place] for place in rng.choice(len(rows), sentences, replace=False)] for _ in range(count)]
    sides = ([" ".join(row[side] for row in each) for each in drawn] for side in (0, 1))
    pairs = PairSet.from_lists(*sides, scores=[float(np.mean([row[2] for row in each])) for each in drawn])
    return TestSet(f"{sentences} sentences", pairs)


def main() -> None:
    """Train, then print one line for each kind, text length and saved length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", required=True)
    parser.add_argument("--student", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--tests", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    task = load_task("sts-b", data_dir=arguments.data_dir, inductive=True)
    pairs = task.pairs.sample(arguments.pairs, seed=arguments.seed)
    labelled = pairs.with_scores(BiEncoder.load(arguments.teacher).score(pairs))
    tests = [joined(task.tests["stsb"], sentences=number, count=arguments.tests) for number in (1, 4, 12)]
    for kind, plan in PLANS.items():
        student = (
            BiEncoder.load(arguments.student)
            if kind == "bi"
            else CrossEncoder.load(arguments.student, seed=arguments.seed)
        )
        own = student.max_tokens
        for trained in (False, True):
            if trained:
                with tempfile.TemporaryDirectory() as folder:
                    train(
                        student, labelled, plan=plan, options=TrainingOptions(folder=Path(folder), seed=arguments.seed)
                    )
            elif kind == "cross":
                continue  # its head is random before the training
            for test in tests:
                for length in (plan.max_tokens, 2 * plan.max_tokens, 4 * plan.max_tokens, own):
                    student.model.max_seq_length = length
                    cuts, score = count_cuts(student, test.pairs), evaluate(student, test).average
                    row = [
                        "trained" if trained else "start",
                        kind,
                        test.name,
                        str(length),
                        f"{cuts.cut / cuts.counted:.0%}",
                    ]
                    print("| " + " | ".join([*row, f"{score:.2f}"]) + " |", flush=True)
            student.model.max_seq_length = own


if __name__ == "__main__":
    main()
