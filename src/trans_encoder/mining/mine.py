"""Text to pairs over the whole range of similarity, balanced over the sentences."""

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trans_encoder.data import PairSet, Text
from trans_encoder.encoders import BiEncoder
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.mining.bands import DEFAULT_MIX, RANKED, Band, Mix
from trans_encoder.mining.collecting import Collector, collect_neighbours, collect_parts, collect_random
from trans_encoder.mining.search import DenseSearcher, LexicalSearcher, Method, Searcher
from trans_encoder.progress import progress

logger = logging.getLogger(__name__)

# Neighbours are sought within random shards of this size: so search is exact, its memory bounded and its time linear.
_SHARD = 100_000


@dataclass(frozen=True)
class Mining:
    """Mined pairs and where they came from."""

    pairs: PairSet
    """The pairs, in random order."""
    asked: int
    """How many pairs were asked for."""
    sentences: int
    """How many distinct sentences they were mined from."""
    max_per_sentence: int
    """No sentence is in more pairs than this."""
    counts: dict[str, dict[str, int]]
    """Number of pairs by band, then by method; bands that are not searched for are their own method."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the texts as plain values, ready for JSON."""
        return {**vars(self), "pairs": len(self.pairs)}


def mine(
    text: Text | Sequence[str],
    *,
    pairs: int,
    encoder: BiEncoder | None = None,
    methods: Sequence[Method] | None = None,
    mix: Mix | None = None,
    seed: int = 0,
    max_per_sentence: int | None = None,
) -> Mining:
    """Mine `pairs` pairs from the sentences of `text`, in the default mix if none is given.

    Near, middle and far pairs are neighbours found by each of `methods` in equal parts (default: lexical, and dense
    where an encoder is given). No sentence meets itself or its own duplicate (white space and case aside); two parts
    of it may meet. No pair comes twice in either order, and no sentence is in more than `max_per_sentence` pairs
    (default: twice the mean, at least 4). If the text does not hold enough such pairs there are fewer, and a warning
    says so.
    """
    if pairs < 1 or (max_per_sentence is not None and max_per_sentence < 1):
        raise ConfigurationError(f"asked for {pairs} pairs, {max_per_sentence} a sentence; ask for at least 1 of each")
    chosen = _chosen(methods, encoder)
    mix = mix or DEFAULT_MIX
    counts = mix.counts(pairs)
    if methods is not None and not mix.has_neighbours:
        raise ConfigurationError(
            f"mining methods {list(methods)} find neighbours, but the mix has none; "
            f"give it near, middle or far pairs (4,2,2,2,0), or leave the methods out"
        )
    sentences = _distinct(text if isinstance(text, Text) else Text.from_sentences(text))
    limit = max_per_sentence or max(4, math.ceil(4 * pairs / len(sentences)))
    rng = np.random.default_rng(seed)
    with progress("mining pairs", total=pairs) as advance:
        collector = Collector(len(sentences), limit=limit, on_pair=advance)
        _mine_shards(collector, sentences, counts=counts, methods=chosen, encoder=encoder, rng=rng)
        collect_random(collector, counts["random"], rng=rng)
        collect_parts(collector, sentences, counts["parts"], rng=rng)
    found = len(collector.slots)
    if not found:
        raise DataError(f"no pair could be mined from {len(sentences)} sentences; give more text or another mix")
    if found < pairs:
        logger.warning(
            "asked for %d pairs, but %d distinct sentences gave only %d with at most %d pairs a sentence; "
            "give more text, raise the limit (max_per_sentence) or change the mix",
            *(pairs, len(sentences), found, limit),
        )
    return Mining(_shuffled(collector, sentences, rng=rng), pairs, len(sentences), limit, _counts(collector))


def _chosen(methods: Sequence[Method] | None, encoder: BiEncoder | None) -> tuple[Method, ...]:
    if methods is None:
        return ("lexical",) if encoder is None else ("lexical", "dense")
    if not methods or set(methods) - {"lexical", "dense"}:
        raise ConfigurationError(f"mining methods {list(methods)} were given; choose from: lexical, dense")
    if "dense" in methods and encoder is None:
        raise ConfigurationError("dense mining needs a bi-encoder; give one, or mine with lexical alone")
    return tuple(dict.fromkeys(methods))


def _distinct(text: Text) -> pa.ChunkedArray:
    """Return the sentences without later duplicates, white space and case aside."""
    column = text.sentences
    strings = (string for chunk in column.chunks for string in chunk.to_pylist())
    keys = np.fromiter((hash(" ".join(string.split()).casefold()) for string in strings), np.int64, len(column))
    _, first = np.unique(keys, return_index=True)
    if len(first) < 2:
        raise DataError(f"pairs need at least two different sentences; the text has {len(first)}")
    return column if len(first) == len(column) else column.take(pa.array(np.sort(first)))


def _mine_shards(
    collector: Collector,
    sentences: pa.ChunkedArray,
    *,
    counts: dict[Band, int],
    methods: tuple[Method, ...],
    encoder: BiEncoder | None,
    rng: np.random.Generator,
) -> None:
    """Collect neighbours shard by shard; what one shard lacks is asked of the next."""
    shards = np.array_split(rng.permutation(len(sentences)), math.ceil(len(sentences) / _SHARD))
    owed = {method: {band: (counts[band] + i) // len(methods) for band in RANKED} for i, method in enumerate(methods)}
    for shards_left, members in zip(range(len(shards), 0, -1), shards, strict=True):
        shard = np.sort(members)
        strings = sentences.take(pa.array(shard)).to_pylist()
        for method in methods:
            share = {band: math.ceil(count / shards_left) for band, count in owed[method].items()}
            if any(share.values()):
                searcher = _searcher(method, strings, encoder=encoder)
                failed = collect_neighbours(collector, searcher, shard=shard, share=share, method=method, rng=rng)
                owed[method] = {band: owed[method][band] - share[band] + failed[band] for band in RANKED}


def _searcher(method: Method, sentences: Sequence[str], *, encoder: BiEncoder | None) -> Searcher:
    return DenseSearcher(sentences, encoder) if method == "dense" and encoder else LexicalSearcher(sentences)


def _shuffled(collector: Collector, sentences: pa.ChunkedArray, *, rng: np.random.Generator) -> PairSet:
    """Return the pairs in random order, so that any head of them has the same mix."""
    rows = np.array(collector.rows, dtype=np.int64).reshape(-1, 2)
    made = np.array(collector.made, dtype=object).reshape(-1, 2)
    columns = {
        name: pa.chunked_array(
            [*sentences.take(pa.array(rows[:, side])).chunks, pa.array(made[:, side], sentences.type)]
        )
        for side, name in enumerate(("sentence1", "sentence2"))
    }
    return PairSet.from_table(pa.table(columns).take(pa.array(rng.permutation(len(rows) + len(made)))))


def _counts(collector: Collector) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for (band, method), count in Counter(collector.slots).items():
        counts.setdefault(band, {})[method or band] = count
    return counts
