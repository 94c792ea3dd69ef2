"""Finding duplicates without labels, on corpora whose duplicates are known; and the constants of the estimator.

    python benchmarks/duplicates.py fit DATA --model STATIC --out src/trans_encoder/answers/probability/constants.json
    python benchmarks/duplicates.py report DATA --model all-MiniLM-L6-v2 --cache CACHE --out duplicates.json
    python benchmarks/duplicates.py report DATA --model all-MiniLM-L6-v2 --cross RERANKER --out duplicates-cross.json
    python benchmarks/duplicates.py report DATA --run RUN --out duplicates-run.json    # a run's bi- and cross-encoders
    python benchmarks/duplicates.py semhash DATA --model potion-base-8M        # in an environment with semhash
    python benchmarks/duplicates.py flips DATA                                 # pairs that a flip alone separates

DATA holds `qqp`, `mrpc`, `sickr` and `sts13` to `sts16` as tab-separated files. A corpus is all texts of a set of
judged pairs; its duplicates are the pairs judged the same and what follows from them (a = b and b = c). Nearly all
pairs of a corpus were never judged: "all" counts a pair that was found but is not among the duplicates as wrong,
"judged" looks at judged pairs alone. Constants are set on the STS corpora and reported on the others; image captions
are left out of the setting because SICK was made of such. With cross-encoders, the corpora are also decided without
them; they read each pair that vectors leave a chance twice, which takes most of the time.
"""

import argparse
import csv
import gzip
import hashlib
import json
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

THRESHOLDS = (0.70, 0.75, 0.80, 0.85, 0.90, 0.95)
PROMISES = (0.5, 0.6, 0.7, 0.8, 0.9)
LEFT_OUT = ("FNWN", "images", "MSRpar", "MSRvid")
REPLICATES = 24


@dataclass
class Known:
    """A corpus and what is known of its pairs; pairs are keys `low * len(texts) + high`."""

    name: str
    texts: list[str]
    judged: dict[int, bool]
    duplicates: set[int]

    def keys(self, left, right):
        return np.minimum(left, right) * len(self.texts) + np.maximum(left, right)


def read(data: Path, name: str, *splits: str) -> list[dict[str, str]]:
    rows = []
    for split in splits:
        with gzip.open(data / name / f"{split}.tsv.gz", "rt", encoding="utf-8") as file:
            rows += csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return rows


def known(name: str, rows: list[dict[str, str]], same) -> Known:
    texts = list(dict.fromkeys(row[side] for row in rows for side in ("sentence1", "sentence2")))
    place, parent = {text: number for number, text in enumerate(texts)}, list(range(len(texts)))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    judged: dict[int, bool] = {}
    for row in rows:
        a, b = sorted((place[row["sentence1"]], place[row["sentence2"]]))
        if a != b:
            judged[a * len(texts) + b] = judged.get(a * len(texts) + b, False) or same(row)
    for key, is_same in judged.items():
        if is_same:
            parent[root(key // len(texts))] = root(key % len(texts))
    groups = defaultdict(list)
    for node in range(len(texts)):
        groups[root(node)].append(node)
    duplicates = {a * len(texts) + b for group in groups.values() for a in group for b in group if a < b}
    return Known(name, texts, judged, duplicates)


def reported(data: Path, pairs: int | None = None) -> list[Known]:
    """Return the corpora of the report; with `pairs`, of a sample of that size of each."""

    def some(rows):
        return rows if pairs is None else random.Random(0).sample(rows, min(pairs, len(rows)))

    def is_one(row):
        return float(row["score"]) > 0.5

    def is_alike(row):
        return float(row["score_raw"]) >= 4.5 and row["entailment"] != "CONTRADICTION"

    return [
        known("QQP", some(read(data, "qqp", "dev", "test")), is_one),
        known("MRPC", some(read(data, "mrpc", "dev", "test")), is_one),
        known("SICK", some(read(data, "sickr", "dev", "test")), is_alike),
    ]


def setting(data: Path) -> list[Known]:
    subsets = defaultdict(list)
    for year in ("sts13", "sts14", "sts15", "sts16"):
        for row in read(data, year, "test"):
            subsets[row["subset"]].append(row)
    return [
        known(name, rows, lambda row: float(row["score"]) >= 0.8)
        for name, rows in subsets.items()
        if name not in LEFT_OUT
    ]


def embedded(corpus: Known, embedder, cache: Path | None):
    from trans_encoder.answers.index import build_index
    from trans_encoder.answers.retrieval.embedded import Embedded
    from trans_encoder.data.corpus import Corpus

    rows = Corpus.from_texts(corpus.texts)
    if cache is None:
        return Embedded.of(rows, embedder)
    name = "+".join(Path(model).name for model in embedder.names)  # every run calls its model "bi"
    name += "-" + hashlib.sha256(json.dumps(embedder.fingerprints, sort_keys=True).encode()).hexdigest()[:8]
    return build_index(rows, cache / f"{name}-{corpus.name}-{len(rows)}", models=embedder, replace=True).embedded


def fit(arguments) -> None:
    """Fit the weights of the evidence by logistic regression, every corpus with the same weight."""
    from sklearn.linear_model import LogisticRegression

    from trans_encoder.answers.probability.estimate import measure_scale, pair_evidence
    from trans_encoder.answers.probability.evidence import TEXT_FEATURES
    from trans_encoder.answers.retrieval.candidates import find_candidates
    from trans_encoder.answers.retrieval.dense import DenseIndex
    from trans_encoder.answers.retrieval.embedder import load_embedder
    from trans_encoder.answers.retrieval.lexical import LexicalIndex

    evidence, labels, names = [], [], []
    for model in arguments.model:
        embedder = load_embedder([model])
        for corpus in setting(arguments.data):
            rows = embedded(corpus, embedder, arguments.cache)
            scale = measure_scale(rows, embedder, rng=np.random.default_rng(0))
            found = find_candidates(
                rows, dense=DenseIndex(rows.vectors), lexical=LexicalIndex(rows.texts), floor=scale.score(0.3)
            )
            keys = corpus.keys(found.left, found.right)
            labels.append(np.fromiter((int(key) in corpus.duplicates for key in keys), bool, len(keys)))
            evidence.append(pair_evidence(rows, found.left, found.right, scale(found.scores), scale(found.crowd)))
            names.append(corpus.name)
            print(corpus.name, scale, len(keys), int(labels[-1].sum()), flush=True)

    def fitted(chosen):
        weight = np.concatenate([np.full(len(labels[place]), 1000 / len(labels[place])) for place in chosen])
        model = LogisticRegression(C=100, max_iter=1000)
        model.fit(np.concatenate([evidence[p] for p in chosen]), np.concatenate([labels[p] for p in chosen]), weight)
        return [*model.coef_[0].round(3).tolist(), round(float(model.intercept_[0]), 3)]

    rng = np.random.default_rng(0)
    *weights, bias = fitted(range(len(names)))
    corpora = sorted(set(names))
    kept = [set(rng.choice(corpora, size=round(0.6 * len(corpora)), replace=False)) for _ in range(REPLICATES)]
    content = {
        "features": ["score", "crowd", *TEXT_FEATURES],
        "weights": weights,
        "bias": bias,
        "crowd": round(float(np.mean([np.median(part[:, 1]) for part in evidence])), 3),
        "replicates": [fitted([p for p, name in enumerate(names) if name in some]) for some in kept],
    }
    arguments.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(content)


def f1(found: set[int], corpus: Known) -> dict[str, float]:
    """Return precision, recall and F1 among all pairs, and among the judged ones."""
    result = {}
    same = {key for key, is_same in corpus.judged.items() if is_same}
    for name, accepted, gold in (("all", found, corpus.duplicates), ("judged", found & set(corpus.judged), same)):
        right = len(accepted & gold)
        result[name] = {
            "precision": right / max(len(accepted), 1),
            "recall": right / len(gold),
            "f1": 2 * right / (len(accepted) + len(gold)),
        }
    return result


def near(vectors, least: float):
    """Return keys and cosines of all pairs from a cosine on: an exact search."""
    keys, scores, count = [], [], len(vectors)
    for start in range(0, count, 1024):
        block = vectors[start : start + 1024] @ vectors.T
        rows, columns = np.nonzero(block >= least)
        above = columns > rows + start
        keys.append((rows[above] + start) * count + columns[above])
        scores.append(block[rows[above], columns[above]])
    return np.concatenate(keys), np.concatenate(scores)


def error_of(probabilities, right) -> float:
    """Return the expected calibration error over ten bins of equal width."""
    bins = np.minimum((probabilities * 10).astype(int), 9)
    gaps = [abs(probabilities[bins == b].mean() - right[bins == b].mean()) * (bins == b).sum() for b in set(bins)]
    return float(sum(gaps) / len(bins))


def report(arguments) -> None:
    from sentence_transformers.util import paraphrase_mining_embeddings

    from trans_encoder.answers.duplicates import duplicates_of, models_of
    from trans_encoder.answers.retrieval.embedder import load_embedder
    from trans_encoder.distill.run import Result
    from trans_encoder.encoders import CrossEncoder

    models, crosses = models_of(Result.open(arguments.run)) if arguments.run else (arguments.model, [])
    embedder = load_embedder(models)
    crosses += [CrossEncoder.load(name) for name in arguments.cross]
    result: dict[str, dict] = {}
    for corpus in reported(arguments.data, arguments.pairs):
        if arguments.corpus and corpus.name not in arguments.corpus:
            continue
        rows = embedded(corpus, embedder, arguments.cache)
        begun = time.perf_counter()
        found = duplicates_of(rows, embedder, crosses=crosses)
        seconds = time.perf_counter() - begun
        table = found.candidates
        ids = [np.array(table[side].to_pylist(), dtype=np.int64) - 1 for side in ("id1", "id2")]
        keys, probabilities = corpus.keys(*ids), table["probability"].to_numpy()
        same = table["same"].to_numpy()
        right = np.fromiter((int(key) in corpus.duplicates for key in keys), bool, len(keys))
        one = {
            "texts": len(corpus.texts),
            "judged": len(corpus.judged),
            "duplicates": len(corpus.duplicates),
            "seconds": round(seconds, 1),
            "ours": f1(set(keys[same].tolist()), corpus),
            "expected precision": found.summary["expected_precision"],
            "calibration error": error_of(probabilities, right),
            "promised": {str(promise): promised(keys, probabilities, corpus, promise) for promise in PROMISES},
        }
        if crosses:
            table = duplicates_of(rows, embedder).candidates
            same = table["same"].to_numpy()
            ids = [np.array(table[side].to_pylist(), dtype=np.int64)[same] - 1 for side in ("id1", "id2")]
            one["without cross-encoders"] = f1(set(corpus.keys(*ids).tolist()), corpus)
        vectors = rows.take_vectors(np.arange(len(corpus.texts)))
        pairs, cosines = near(vectors, THRESHOLDS[0])
        one["cosine"] = {str(t): f1(set(pairs[cosines >= t].tolist()), corpus) for t in THRESHOLDS}
        mined = np.array(paraphrase_mining_embeddings(vectors))
        mined_keys = corpus.keys(mined[:, 1].astype(np.int64), mined[:, 2].astype(np.int64))
        one["paraphrase_mining"] = {
            f"{t:.2f}": f1(set(mined_keys[mined[:, 0] >= t].tolist()), corpus) for t in np.arange(0.6, 0.99, 0.01)
        }
        result[corpus.name] = one
        told = {name: one.get(name) for name in ("ours", "without cross-encoders", "seconds")}
        print(corpus.name, json.dumps(told), flush=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    show(result)


def promised(keys, probabilities, corpus: Known, promise: float):
    """Return how many pairs a promised precision accepts, and their true precision."""
    order = np.argsort(-probabilities, kind="stable")
    kept = int((np.cumsum(probabilities[order]) / np.arange(1, len(order) + 1) >= promise).sum())
    return {
        "pairs": kept,
        **{mode: one["precision"] for mode, one in f1(set(keys[order[:kept]].tolist()), corpus).items()},
    }


def show(result) -> None:
    for mode in ("all", "judged"):

        def line(name, pick, mode=mode):
            values = [pick(one)[mode]["f1"] for one in result.values()]
            print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in [*values, np.mean(values)]) + " |")

        print(f"\n{mode}: F1 | " + " | ".join(result) + " | mean |")
        line("ours, default", lambda one: one["ours"])
        if all("without cross-encoders" in one for one in result.values()):
            line("ours, without cross-encoders", lambda one: one["without cross-encoders"])
        for t in THRESHOLDS:
            line(f"cosine >= {t:.2f}", lambda one, t=t: one["cosine"][str(t)])
        grid = next(iter(result.values()))["paraphrase_mining"]
        best = max(grid, key=lambda t: np.mean([one["paraphrase_mining"][t][mode]["f1"] for one in result.values()]))
        line(f"paraphrase_mining, best common threshold {best}", lambda one, best=best: one["paraphrase_mining"][best])
    for name, one in result.items():
        promises = {promise: f"{found['all']:.2f} of {found['pairs']}" for promise, found in one["promised"].items()}
        print(name, "calibration error", round(one["calibration error"], 3), "promised: true precision", promises)


def semhash(arguments) -> None:
    """Run semhash with its default threshold and a local copy of its default model."""
    from model2vec import StaticModel
    from semhash import SemHash

    model, scores = StaticModel.from_pretrained(arguments.model[0]), Counter()
    for corpus in reported(arguments.data):
        result = SemHash.from_records(records=corpus.texts, model=model).self_deduplicate()
        place = {text: number for number, text in enumerate(corpus.texts)}
        found = {
            int(corpus.keys(place[one.record], place[other]))
            for one in result.filtered
            for other, _ in one.duplicates
            if other != one.record
        }
        for mode, figures in f1(found, corpus).items():
            scores[mode] += figures["f1"] / 3
            print(corpus.name, mode, {name: round(value, 3) for name, value in figures.items()})
    print({mode: round(value, 3) for mode, value in scores.items()})


def flips(arguments) -> None:
    """Show the judged pairs of the STS sets that differ by a flip alone, and count those that are all but equal."""
    from trans_encoder.answers.probability.evidence import fold
    from trans_encoder.evaluation.flipped import flip_between

    sets = [(year, "test") for year in ("sts13", "sts14", "sts15", "sts16")] + [("sts12", "train"), ("stsb", "train")]
    rows = [row for name, split in sets for row in read(arguments.data, name, split)]
    pairs = {(row["sentence1"], row["sentence2"]): float(row["score"]) for row in rows}
    found = [(flip, *pair, score) for pair, score in pairs.items() if (flip := flip_between(*pair))]
    for one in sorted(found):
        print(*one, sep=" | ")
    same = sum(score >= 0.8 for *_, score in found)
    print(f"{len(pairs)} pairs, {len(found)} differ by a flip alone, of which {same} were judged the same")
    pairs |= {(row["sentence1"], row["sentence2"]): float(row["score"]) for row in read(arguments.data, "qqp", "train")}
    alike = [score for (a, b), score in pairs.items() if a != b and fold(a) == fold(b)]
    same = sum(score >= 0.8 for score in alike)
    print(f"with QQP's, {len(alike)} differ in case, spacing or the end alone, of which {same} were judged the same")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fit", "report", "semhash", "flips"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--cross", action="append", default=[])
    parser.add_argument("--run", type=Path, help="take the bi- and cross-encoders of a finished run")
    parser.add_argument("--corpus", action="append", help="report on this one only: QQP, MRPC or SICK; repeatable")
    parser.add_argument("--pairs", type=int, help="report on a sample of this size of each set")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path, default=Path("duplicates.json"))
    arguments = parser.parse_args()
    {"fit": fit, "report": report, "semhash": semhash, "flips": flips}[arguments.what](arguments)


if __name__ == "__main__":
    main()
