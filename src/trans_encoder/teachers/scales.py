"""Bring teachers' scores to one scale before they are averaged, and map the mean to a student's own scale.

Encoders use different parts of the range: for two unrelated sentences all-MiniLM-L6-v2 gives about 0.05, bge-small 0.30
and e5-small 0.73. A plain mean of such scores follows whoever spreads most. `rank` keeps only the order that each
teacher gives, `z` its mean and spread; `none` is the paper's plain mean.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trans_encoder.config import Scale
from trans_encoder.data import Scores
from trans_encoder.errors import DataError
from trans_encoder.evaluation.ensembles import mean_scores as plain_mean

Floats = NDArray[np.float64]

_Z_MEAN, _Z_SPREAD = 0.5, 0.25  # z-scores are saved on this scale, so that nearly all are probabilities


def uniform_ranks(scores: NDArray[np.floating]) -> Floats:
    """Return the ranks of scores, spread evenly over (0, 1); equal scores share the mean of their ranks."""
    from scipy.stats import rankdata

    return np.asarray((rankdata(scores) - 0.5) / max(len(scores), 1), dtype=np.float64)


def at_quantiles(scores: NDArray[np.floating], reference: NDArray[np.floating]) -> Floats:
    """Keep the order of scores and give them the distribution of a reference."""
    sorted_reference = np.sort(np.asarray(reference, dtype=np.float64))
    places = (np.arange(len(sorted_reference)) + 0.5) / len(sorted_reference)
    return np.interp(uniform_ranks(scores), places, sorted_reference)


def mean_scores(columns: Mapping[str, Scores], *, scale: Scale, weights: Mapping[str, float]) -> Scores:
    """Return the plain mean (section 2.4) where nothing else was asked for, else the mean on one scale."""
    if scale != "none" or set(weights.values()) != {1.0} or any(np.isnan(each).any() for each in columns.values()):
        return combined(columns, scale=scale, weights=weights)
    return plain_mean(list(columns.values()))


def combined(columns: Mapping[str, Scores], *, scale: Scale, weights: Mapping[str, float] | None = None) -> Scores:
    """Average teachers' scores on one scale; a missing score (NaN) leaves the average to the other teachers.

    On the scales `rank` and `z` the result lies mostly within [0, 1], whatever the teachers' own scales are.
    """
    names = list(columns)
    shares = np.array([1.0 if weights is None else weights.get(name, 1.0) for name in names])
    table = aligned(columns, scale=scale, weights=weights)
    present = ~np.isnan(table)
    total = np.where(present, table, 0.0).T @ shares
    weight = present.T @ shares
    if (weight <= 0).any():
        missing = int((weight <= 0).sum())
        raise DataError(
            f"{missing:,} of {len(weight):,} pairs have no score from any teacher with a weight; "
            f"add a teacher that scores every pair, such as a bi-encoder or lexical"
        )
    mean = total / weight
    if scale == "rank":
        mean = uniform_ranks(mean)
    elif scale == "z":
        mean = _Z_MEAN + _Z_SPREAD * _standardised(mean)
    return np.asarray(mean, dtype=np.float32)


def aligned(columns: Mapping[str, Scores], *, scale: Scale, weights: Mapping[str, float] | None = None) -> Floats:
    """Return one row for each teacher, all on the same scale.

    A teacher that scored only some of the pairs is compared on those alone: they may all be hard, or all alike, so its
    scores get the distribution that the other teachers' average has there.
    """
    table = np.stack([np.asarray(column, dtype=np.float64) for column in columns.values()])
    if scale == "none":
        return table
    to_scale = uniform_ranks if scale == "rank" else _standardised
    complete = ~np.isnan(table).any(axis=1)
    for row in np.flatnonzero(complete):
        table[row] = to_scale(table[row])
    if complete.all():
        return table
    shares = np.array([1.0 if weights is None else weights.get(name, 1.0) for name in columns])[complete]
    consensus = np.average(table[complete], axis=0, weights=shares) if shares.sum() > 0 else None
    for row in np.flatnonzero(~complete):
        scored = ~np.isnan(table[row])
        if consensus is None:
            table[row, scored] = to_scale(table[row, scored])
        elif scored.any():
            table[row, scored] = at_quantiles(table[row, scored], consensus[scored])
    return table


def laid_on(labels: Scores, reference: Scores, *, scale: Scale) -> Scores:
    """Map combined labels to a student's scale: the scores that it gave to the same pairs itself.

    A student that keeps its own scale moves only where the teachers order pairs differently.
    """
    if scale == "none":
        return labels
    if scale == "rank":
        return at_quantiles(labels, reference).astype(np.float32)
    spread = float(np.std(reference, dtype=np.float64))
    mean = float(np.mean(reference, dtype=np.float64))
    return (mean + spread * (labels.astype(np.float64) - _Z_MEAN) / _Z_SPREAD).astype(np.float32)


def pairs_to_ask(columns: Mapping[str, Scores], *, share: float) -> NDArray[np.int64]:
    """Return the rows on which teachers differ most in the rank that they give a pair, in the order of the pairs.

    Fewer than two teachers cannot differ: then the rows are drawn at random.
    """
    complete = {name: scores for name, scores in columns.items() if not np.isnan(scores).any()}
    if len(complete) > 1:
        gaps = np.nanstd(aligned(columns, scale="rank"), axis=0)
    else:
        gaps = np.random.default_rng(0).random(len(next(iter(columns.values()))))
    count = max(1, round(share * len(gaps)))
    return np.sort(np.argsort(-gaps, kind="stable")[:count])


def _standardised(scores: Floats) -> Floats:
    spread = float(scores.std())
    return np.asarray((scores - scores.mean()) / (spread if spread > 0 else 1.0), dtype=np.float64)
