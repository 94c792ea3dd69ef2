"""What hard pairs bring: a cross-encoder that learns the same labels with and without them, on flips and on STS.

    python benchmarks/hard_pairs.py LABELS DEV --model ms-marco-MiniLM-L-12-v2 --pairs 1000 --shares 0 0.25

LABELS is a run's `labels-bi.parquet`, DEV a file of graded pairs. The flip test's cases are hand-written, and none of
them is learnt; the model as it comes, and any given with `--beside`, are in the result too.
"""

import argparse
import json
from pathlib import Path

from trans_encoder import PairSet, TestSet, evaluate, learn
from trans_encoder.distill.labels import with_hard_pairs
from trans_encoder.encoders import load_encoder
from trans_encoder.evaluation.probe import probe


def figures(encoder, dev: TestSet) -> dict:
    """Return the flip test's figures and the dev score of a model."""
    found = probe(encoder)
    flips = {kind: {"right": round(one.right, 1), "auc": round(one.auc, 1)} for kind, one in found.written.items()}
    return {"dev": round(next(iter(evaluate(encoder, dev).scores.values())), 2), "flips": flips}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--dev-pairs", type=int, default=500)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.25])
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--work", type=Path, default=Path("hard-pairs"))
    parser.add_argument("--out", type=Path, default=Path("hard-pairs.json"))
    options = parser.parse_args()
    labelled = PairSet.read(options.labels)
    labelled = labelled.sample(min(options.pairs, len(labelled)), seed=options.seed)
    whole = TestSet.read(options.dev)
    dev = TestSet(whole.name, whole.pairs.sample(min(options.dev_pairs, len(whole.pairs)), seed=0))
    result = {Path(name).name: figures(load_encoder(name), dev) for name in [*options.beside, options.model]}
    for share in options.shares:
        pairs = with_hard_pairs(labelled, share=share, seed=options.seed)
        out = options.work / f"share-{share:g}"
        encoder = learn(pairs, options.model, kind="cross", out=out, seed=options.seed)
        result[f"share {share:g}"] = {"pairs": len(pairs), **figures(encoder, dev)}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(result[f"share {share:g}"]), flush=True)


if __name__ == "__main__":
    main()
