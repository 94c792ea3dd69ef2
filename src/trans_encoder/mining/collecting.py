"""Collecting pairs: none twice, no sentence overused, each band its share."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from trans_encoder.mining.bands import DEPTH, Band, rank_limits
from trans_encoder.mining.parts import two_parts
from trans_encoder.mining.search import Method, Positions, Searcher

Slot = tuple[Band, Method | None]
"""A band and the method that found the pair; no method for those that are not searched for."""

_BLOCK = 512
_LEAST_GAIN = 0.01


class Collector:
    """Takes a pair in if neither sentence is in too many pairs and the pair is new in either order."""

    def __init__(self, sentences: int, *, limit: int, on_pair: Callable[[int], None]) -> None:
        """Start empty; each of the sentences may be in at most `limit` pairs."""
        self.limit = limit
        self.uses = np.zeros(sentences, dtype=np.int32)
        self.rows: list[tuple[int, int]] = []
        self.made: list[tuple[str, str]] = []
        self.slots: list[Slot] = []
        self._seen: set[int | frozenset[str]] = set()
        self._on_pair = on_pair

    def offer(self, first: int, candidates: Iterable[int], slot: Slot) -> bool:
        """Pair `first` with the first candidate that may be; say whether there was one."""
        if self.uses[first] >= self.limit:
            return False
        for second in candidates:
            key = min(first, second) * len(self.uses) + max(first, second)
            if first != second and key not in self._seen and self.uses[second] < self.limit:
                self.rows.append((first, second))
                self._take(key, (first, second), slot)
                return True
        return False

    def offer_parts(self, sentence: int, parts: tuple[str, str]) -> bool:
        """Take in two parts of a sentence unless they are the same; say whether they were taken."""
        key = frozenset(parts)
        if len(key) < 2 or key in self._seen or self.uses[sentence] >= self.limit:
            return False
        self.made.append(parts)
        self._take(key, (sentence,), ("parts", None))
        return True

    def _take(self, key: int | frozenset[str], sentences: Sequence[int], slot: Slot) -> None:
        self._seen.add(key)
        self.slots.append(slot)
        for sentence in sentences:
            self.uses[sentence] += 1
        self._on_pair(1)


def collect_neighbours(
    collector: Collector,
    searcher: Searcher,
    *,
    shard: Positions,
    share: dict[Band, int],
    method: Method,
    rng: np.random.Generator,
) -> Counter[Band]:
    """Collect a share of each band from one shard; return how many of each could not be found.

    Each query serves one pair a round, so that the pairs spread over as many sentences as there are; what fails is
    tried with other queries until a round brings next to nothing.
    """
    limits = rank_limits(len(shard))
    bands: list[Band] = [band for band, count in share.items() for _ in range(count)]
    while bands:
        rng.shuffle(bands)
        queries = rng.permutation(np.flatnonzero(collector.uses[shard] < collector.limit))[: len(bands)]
        failed = bands[len(queries) :]
        for start in range(0, len(queries), _BLOCK):
            block = queries[start : start + _BLOCK]
            ranked = searcher.search(block, DEPTH + 1)  # a sentence finds itself, too
            for query, found, band in zip(block, ranked, bands[start : start + len(block)], strict=True):
                neighbours = found[(found != query) & (found >= 0)][slice(*limits[band])]
                candidates = shard[rng.permutation(neighbours)].tolist()
                if not collector.offer(int(shard[query]), candidates, (band, method)):
                    failed.append(band)
        if len(bands) - len(failed) <= _LEAST_GAIN * len(queries):
            return Counter(failed)
        bands = failed
    return Counter()


def collect_random(collector: Collector, count: int, *, rng: np.random.Generator) -> None:
    """Join sentences at random until there are `count` such pairs or hardly any is left to find."""
    while count > 0:
        free = np.flatnonzero(collector.uses < collector.limit)
        if len(free) < 2:
            return
        drawn = rng.choice(free, size=(count, 2)).tolist()
        gained = sum(collector.offer(first, [second], ("random", None)) for first, second in drawn)
        if gained <= _LEAST_GAIN * len(drawn):
            return
        count -= gained


def collect_parts(collector: Collector, sentences: pa.ChunkedArray, count: int, *, rng: np.random.Generator) -> None:
    """Make pairs of two parts of a sentence until there are `count` or hardly any is left to make."""
    while count > 0:
        drawn = rng.permutation(np.flatnonzero(collector.uses < collector.limit))[:count]
        strings = sentences.take(pa.array(drawn)).to_pylist()
        gained = sum(
            collector.offer_parts(int(place), two_parts(string, rng=rng))
            for place, string in zip(drawn, strings, strict=True)
        )
        if gained <= _LEAST_GAIN * len(drawn):
            return
        count -= gained
