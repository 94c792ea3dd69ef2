"""Does the lexical floor tell weak encoders from strong ones? Label-free scores beside scores by labels, on STS-B.

python benchmarks/floor.py --data-dir DATA --model MODEL --model MODEL
"""

import argparse
import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

from trans_encoder import BiEncoder, TestSet, load_task
from trans_encoder.distill.judges import LabelFreeJudge
from trans_encoder.evaluation.evaluate import measure


def main() -> None:
    """Print one line for TF-IDF and one for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="folder of tasks in the plain format")
    parser.add_argument("--model", action="append", required=True, help="a bi-encoder; repeatable")
    parser.add_argument("--pairs", type=int, default=300, help="pairs of the test set (default: 300)")
    arguments = parser.parse_args()
    test = next(iter(load_task("sts-b", data_dir=arguments.data_dir).tests.values()))
    test = TestSet("sample", test.pairs.sample(arguments.pairs, seed=0))
    judge, count = LabelFreeJudge.of(test.pairs.without_scores(), seed=0), len(test.pairs)
    scores = {"letter-group TF-IDF": judge.overlap}
    scores |= {name: BiEncoder.load(name, max_tokens=64).score(judge.pairs) for name in arguments.model}
    for name, found in scores.items():
        print(f"{name}: {measure(found[:count], test):.1f} by labels, label-free score {judge.rate(found):.1f}")


if __name__ == "__main__":
    main()
