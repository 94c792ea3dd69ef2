"""What hard pairs bring: a cross-encoder that learns the same labels with and without them, on flips and on STS.

    trans-encoder label all-MiniLM-L6-v2 bge-small-en-v1.5 e5-small --pairs pool.tsv --out labels.parquet
    python benchmarks/hard_pairs.py labels.parquet --model ms-marco-MiniLM-L-12-v2 --test dev.tsv --test test.tsv

The teachers' scores are averaged as ranks, and the head of the model is calibrated to them, as in a run. The cases of
the flip test are hand-written and none of them is learnt. The model as it comes, and any given with `--beside`, are in
the result too; what the result holds already is not done again.
"""

import argparse
import json
from pathlib import Path

from trans_encoder import PairSet, TestSet, evaluate, learn
from trans_encoder.distill.labels import PseudoLabels, with_hard_pairs
from trans_encoder.encoders import CrossEncoder, load_encoder
from trans_encoder.encoders.calibrating import calibrate_to
from trans_encoder.evaluation.probe import probe
from trans_encoder.teachers.scales import mean_scores


def figures(encoder, tests: list[TestSet]) -> dict:
    """Return the flip test's figures of a model and its scores."""
    found = probe(encoder)
    flips = {kind: {"right": round(one.right, 1), "auc": round(one.auc, 1)} for kind, one in found.written.items()}
    scores = {test.name: round(next(iter(evaluate(encoder, test).scores.values())), 2) for test in tests}
    return {"scores": scores, "flips": flips}


def labelled_pairs(path: Path, *, count: int, seed: int) -> PairSet:
    labels = PseudoLabels.open(path)
    scores = mean_scores(labels.by_teacher, scale="rank", weights=dict.fromkeys(labels.by_teacher, 1.0))
    pairs = labels.pairs.with_scores(scores)
    return pairs.sample(min(count, len(pairs)), seed=seed)


def taught(pairs: PairSet, share: float, options) -> CrossEncoder:
    start = CrossEncoder.load(options.model)
    calibrate_to(start, pairs)
    work = options.work / f"pairs-{len(pairs)}-share-{share:g}-seed-{options.seed}"
    start.save(work / "start")
    hard = with_hard_pairs(pairs, share=share, seed=options.seed)
    print(f"share {share:g}: {len(hard) - len(pairs)} hard pairs beside {len(pairs)}", flush=True)
    return learn(hard, str(work / "start"), kind="cross", out=work / "learnt", seed=options.seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--test", type=Path, action="append", default=[], help="graded pairs")
    parser.add_argument("--model", required=True)
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.25])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("hard-pairs"))
    parser.add_argument("--out", type=Path, default=Path("hard-pairs.json"))
    options = parser.parse_args()
    tests = [TestSet.read(path) for path in options.test]
    result = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    todo = {Path(name).name: name for name in [*options.beside, options.model]}
    todo |= {f"{options.pairs} pairs, share {share:g}, seed {options.seed}": share for share in options.shares}
    for name, what in todo.items():
        if name in result:
            continue
        if isinstance(what, float):
            encoder = taught(labelled_pairs(options.labels, count=options.pairs, seed=options.seed), what, options)
        else:
            encoder = load_encoder(what)
        result[name] = figures(encoder, tests)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(result[name]), flush=True)


if __name__ == "__main__":
    main()
