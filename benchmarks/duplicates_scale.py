"""How finding duplicates grows with the number of texts: time beside embedding, recall of candidates, memory.

    python benchmarks/duplicates_scale.py ours TEXTS --model STATIC --beside all-MiniLM-L6-v2 --out scale.json
    python benchmarks/duplicates_scale.py mining TEXTS --model STATIC            # paraphrase_mining
    python benchmarks/duplicates_scale.py semhash TEXTS --model potion-base-8M   # where semhash is installed

TEXTS has one text on each line. Every size runs in a process of its own, so that its peak memory is its own. Seconds
are of the processor, so that other work on the machine counts little, and of the clock; ratios and exponents are given
for both. A static encoder embeds a text in next to no time; with `--beside`, 10,000 texts are embedded by another
encoder as well, and the ratio is to what it would take for all. Recall is against exact search for 1,000 sampled texts:
which share of their 10 nearest texts are candidates, as far as these score enough to be one; and which share a single
search finds.
"""

import argparse
import gzip
import itertools
import json
import math
import multiprocessing
import resource
import time
from pathlib import Path

import numpy as np

SAMPLE, NEAREST, BESIDE = 1000, 10, 10_000


def read(path: Path, size: int) -> list[str]:
    """Return the first distinct texts."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        lines = dict.fromkeys(line.strip() for line in itertools.islice(file, 2 * size))
    return [line for line in lines if line][:size]


class Clock:
    """Notes the seconds of each part, of the processor and of the clock."""

    def __init__(self):
        self.parts, self._last = {}, self._now()

    def note(self, name):
        now = self._now()
        self.parts[name] = {kind: round(now[kind] - self._last[kind], 2) for kind in now}
        self._last = now

    def _now(self):
        return {"cpu": time.process_time(), "wall": time.perf_counter()}


def ours(path: Path, model: str, size: int, beside: str | None) -> dict:
    from trans_encoder.answers.deciding import decide, score_candidates
    from trans_encoder.answers.probability.estimate import estimate_probability
    from trans_encoder.answers.retrieval.candidates import find_candidates
    from trans_encoder.answers.retrieval.dense import DenseIndex
    from trans_encoder.answers.retrieval.embedded import Embedded
    from trans_encoder.answers.retrieval.embedder import load_embedder
    from trans_encoder.answers.retrieval.lexical import LexicalIndex
    from trans_encoder.data.corpus import Corpus

    texts, embedder = read(path, size), load_embedder([model])
    clock = Clock()
    rows = Embedded.of(Corpus.from_texts(texts), embedder)
    clock.note("embedding")
    dense = DenseIndex(rows.vectors)
    clock.note("clusters")
    lexical = LexicalIndex(rows.texts)
    clock.note("words")
    probability = estimate_probability(rows, embedder, dense)
    clock.note("probability")
    floor = probability.scale.score(0.3)
    found = find_candidates(rows, dense=dense, lexical=lexical, floor=floor)
    clock.note("candidates")
    same, _ = decide(score_candidates(rows, found, probability), precision=None, threshold=None)
    clock.note("deciding")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # what follows is for the benchmark alone
    result = {"seconds": clock.parts, "candidates": len(found), "pairs": int(same.sum()), "peak_mib": peak // 1024}
    if beside:
        some = list(np.random.default_rng(0).choice(texts, size=min(BESIDE, len(texts)), replace=False))
        other = load_embedder([beside])
        other.encode(some[:64])
        clock = Clock()
        other.encode(some)
        clock.note("beside")
        result["beside"] = {kind: round(s / len(some) * size, 1) for kind, s in clock.parts["beside"].items()}
    return {**result, **recalls(rows, dense, found, floor)}


def recalls(rows, dense, candidates, floor) -> dict:
    """Return the share of the nearest texts of a sample that are candidates, and that a search for each text finds."""
    count, rng = len(rows.texts), np.random.default_rng(0)
    chosen = np.sort(rng.choice(count, size=min(SAMPLE, count), replace=False))
    vectors = np.asarray(rows.vectors, dtype=np.float32)
    parts = []
    for some in np.split(chosen, range(50, len(chosen), 50)):  # a matrix of all would take more than the rest
        scores = vectors[some] @ vectors.T
        scores[np.arange(len(some)), some] = -np.inf
        place = np.argpartition(-scores, NEAREST, axis=1)[:, :NEAREST]
        parts.append((place, np.take_along_axis(scores, place, axis=1)))
    exact, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
    found, _ = dense.search(vectors[chosen], NEAREST + 1)
    hits = sum(len(set(a) & set(b)) for a, b in zip(exact.tolist(), found.tolist(), strict=True))
    near = scores > floor + 1e-3  # vectors are searched in 16 bits
    left, right = np.repeat(chosen, near.sum(axis=1)), exact[near]
    keys = np.minimum(left, right) * count + np.maximum(left, right)
    kept = np.isin(keys, candidates.left * count + candidates.right)
    return {"recall": float(kept.mean()), "sampled_pairs": len(kept), "search_recall": hits / exact.size}


def mining(path: Path, model: str, size: int, _beside: str | None) -> dict:
    from sentence_transformers.util import paraphrase_mining_embeddings

    from trans_encoder.answers.retrieval.embedder import load_embedder

    texts, embedder = read(path, size), load_embedder([model])
    clock = Clock()
    vectors = embedder.encode(texts)
    clock.note("embedding")
    pairs = paraphrase_mining_embeddings(vectors)
    clock.note("mining")
    return {"seconds": clock.parts, "candidates": len(pairs)}


def semhash(path: Path, model: str, size: int, _beside: str | None) -> dict:
    from model2vec import StaticModel
    from semhash import SemHash

    texts, encoder = read(path, size), StaticModel.from_pretrained(model)
    clock = Clock()
    built = SemHash.from_records(records=texts, model=encoder)
    clock.note("embedding and index")
    found = built.self_deduplicate()
    clock.note("deduplicating")
    return {"seconds": clock.parts, "pairs": len(found.filtered)}


def measured(what: str, path: Path, model: str, size: int, beside: str | None, results) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = {"ours": ours, "mining": mining, "semhash": semhash}[what](path, model, size, beside)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results.put({"texts": size, "peak_mib": peak // 1024, **result, "before_mib": before // 1024})


def summed_up(results: list[dict]) -> dict:
    """Return the ratio to embedding at each size, and the exponent of growth between sizes."""
    return {kind: _summed_up(results, kind) for kind in ("cpu", "wall")}


def _summed_up(results: list[dict], kind: str) -> dict:
    spent = [sum(part[kind] for part in one["seconds"].values()) for one in results]
    found = [sum(part[kind] for name, part in one["seconds"].items() if "embedding" not in name) for one in results]
    embedding = [one.get("beside", one["seconds"].get("embedding", {})).get(kind) for one in results]

    def exponents(values):
        steps = itertools.pairwise(zip(values, (one["texts"] for one in results), strict=True))
        return [round(math.log(b / a) / math.log(n / m), 3) for (a, m), (b, n) in steps]

    return {
        "beside_embedding": [round(f / e, 3) if e else None for f, e in zip(found, embedding, strict=True)],
        "exponent": exponents(spent),
        "exponent_without_embedding": exponents(found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ours", "mining", "semhash"))
    parser.add_argument("texts", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--beside", help="an encoder whose time of embedding the rest is compared with")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--out", type=Path, default=Path("scale.json"))
    arguments = parser.parse_args()
    context, results = multiprocessing.get_context("spawn"), []
    for size in arguments.sizes:
        queue = context.Queue()
        process = context.Process(
            target=measured, args=(arguments.what, arguments.texts, arguments.model, size, arguments.beside, queue)
        )
        process.start()
        results.append(queue.get())
        process.join()
        content = {"what": arguments.what, "sizes": results, **summed_up(results)}
        arguments.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(results[-1]), flush=True)
    print(json.dumps(summed_up(results)))


if __name__ == "__main__":
    main()
