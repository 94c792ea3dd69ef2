"""What removing common directions does to a start's embeddings, without any training.

    python benchmarks/directions.py --model bert-mini --data-dir DATA

The directions are found on unlabelled pairs of the STS pool; dev sets are scored: Spearman's rho x100 on STS-B and
SICK-R, AUC x100 on MRPC, QQP and QNLI.
"""

import argparse
from pathlib import Path

import numpy as np

from trans_encoder.data import PairSet, load_task
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.directions import without_common_directions
from trans_encoder.evaluation.metrics import auc, spearman

DEV = {"stsb": spearman, "sickr": spearman, "mrpc": auc, "qqp": auc, "qnli": auc}


def main() -> None:
    """Print a line for each number of directions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a bi-encoder, or a PLM with mean pooling")
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of tasks in the plain format")
    parser.add_argument("--pairs", type=int, default=2000, help="pairs of the pool that the directions are found on")
    parser.add_argument("--counts", type=int, nargs="+", default=[0, 1, 3, 5])
    arguments = parser.parse_args()
    pool = load_task("sts", data_dir=str(arguments.data_dir)).pairs.sample(arguments.pairs, seed=0)
    columns = ("sentence1", "sentence2", "score")
    dev = {name: PairSet.read(arguments.data_dir / name / "dev.tsv.gz", columns=columns) for name in DEV}
    print("| directions removed | " + " | ".join(DEV) + " | mean |\n|" + " ---: |" * (len(DEV) + 2))
    for count in arguments.counts:
        encoder = BiEncoder.load(arguments.model, pooling="mean", max_tokens=64)
        if count:
            encoder = without_common_directions(encoder, pool.distinct().sentences, count=count)
        scores = [DEV[name](encoder.score(pairs), pairs.scores) for name, pairs in dev.items()]
        print(f"| {count} | " + " | ".join(f"{score:.2f}" for score in [*scores, np.mean(scores)]) + " |", flush=True)


if __name__ == "__main__":
    main()
