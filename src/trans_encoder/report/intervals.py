"""Bootstrap confidence intervals of scores and of their differences, paired by test pair."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Key = TypeVar("Key")
_CELLS_AT_ONCE = 2_000_000  # bounds the memory of one block of resamples


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> int:
        """Return 1 if the interval lies above zero, -1 if below, 0 if it holds zero."""
        return int(self.low > 0) - int(self.high < 0)

    @property
    def is_none(self) -> bool:
        """Return whether this is the difference of a model to itself."""
        return self.low == self.value == self.high == 0


def interval(value: float, replicates: Array) -> Interval:
    """Return `value` with the 2.5 % and 97.5 % quantiles of its bootstrap replicates."""
    finite = replicates[np.isfinite(replicates)]
    low, high = np.quantile(finite, (0.025, 0.975)) if len(finite) else (value, value)
    return Interval(value, float(low), float(high))


def bootstrap(
    gold: npt.ArrayLike,
    models: Mapping[Key, npt.ArrayLike],
    *,
    metric: str,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[Key, Array]:
    """Return each model's metric (x100) on the same resamples of the test pairs.

    Because all models see the same resamples, the difference of two results is a paired bootstrap.
    A resample is kept as the number of times each pair was drawn: ranks then follow from one cumulative sum over the
    values sorted once, exact with ties and without sorting each resample.
    """
    measure = _METRICS[metric]
    rank_gold = _ranker(np.asarray(gold, dtype=np.float64))
    rankers = {name: _ranker(np.asarray(scores, dtype=np.float64)) for name, scores in models.items()}
    replicates = {name: np.empty(resamples) for name in models}
    generator = np.random.default_rng(seed)
    pairs = len(np.asarray(gold))
    block = max(1, _CELLS_AT_ONCE // pairs)
    for start in range(0, resamples, block):
        counts = _draw(generator, size=min(block, resamples - start), pairs=pairs)
        gold_ranks = rank_gold(counts)
        for name, rank in rankers.items():
            replicates[name][start : start + block] = measure(counts, gold_ranks, rank(counts))
    return replicates


def _draw(generator: np.random.Generator, *, size: int, pairs: int) -> Array:
    drawn = generator.integers(pairs, size=(size, pairs)) + pairs * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=size * pairs).reshape(size, pairs).astype(np.float64)


def _ranker(values: Array) -> Callable[[Array], Array]:
    """Return a function from the counts of each resample to the centred mid-ranks of all values in it."""
    order = np.argsort(values, kind="stable")
    _, starts, sizes = np.unique(values[order], return_index=True, return_counts=True)
    group = np.empty_like(order)
    group[order] = np.repeat(np.arange(len(starts)), sizes)

    def rank(counts: Array) -> Array:
        tied = np.add.reduceat(counts[:, order], starts, axis=1)
        middle: Array = np.cumsum(tied, axis=1) - tied / 2 - len(values) / 2
        return middle[:, group]

    return rank


def _spearman(counts: Array, gold: Array, ranks: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt((counts * gold**2).sum(axis=1) * (counts * ranks**2).sum(axis=1))
        return np.asarray(100 * (counts * gold * ranks).sum(axis=1) / spread)


def _auc(counts: Array, gold: Array, ranks: Array) -> Array:
    positive = counts * (gold > 0)  # of two classes, the positive one ranks above the middle
    positives = positive.sum(axis=1)
    negatives = counts.sum(axis=1) - positives
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(100 * ((positive * ranks).sum(axis=1) / (positives * negatives) + 0.5))


_METRICS = {"spearman": _spearman, "auc": _auc}
