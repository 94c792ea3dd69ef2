"""Probabilities without labels: how likely two texts of a corpus mean the same, from a scorer's scores.

Scores mean different things with every model and corpus: cosines of one model begin at 0.7, and in a corpus about one
thing everything is alike. So a score is first measured against the corpus itself. Zero is what two texts drawn at
random score, one what a text and a light edit of it score, and the crowd is how near other texts are. The map from
these to a probability was set once, on pairs that people had judged, from other corpora (`constants.json`, made by
`benchmarks/duplicates.py fit`); refitted without some of these corpora it gives the interval.

The result is an estimate, of one notion of the same: that people would say the two texts mean the same.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib import resources
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic.dataclasses import dataclass
from sklearn.isotonic import IsotonicRegression

from trans_encoder.answers.probability.edits import lightly_edited
from trans_encoder.answers.probability.evidence import text_evidence
from trans_encoder.answers.retrieval import DenseIndex, Embedded, Embedder, Positions

NOTION = "people would say that the two texts mean the same"
_RANDOM_PAIRS, _EDITED = 10_000, 256
_SAMPLE, _NEIGHBOURS, _DEPTH = 1000, 6, 16
_KNOTS = 48
_LEAST_RANGE = 1e-3
_BLOCK = 1 << 16

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Constants:
    """Weights of the evidence, fitted on judged pairs of other corpora; the replicates leave some of these out."""

    features: tuple[str, ...]
    weights: tuple[float, ...]
    bias: float
    crowd: float
    """The usual crowd, for pairs of which it is not known."""
    replicates: tuple[tuple[float, ...], ...]
    """Weights and, last, bias of each."""

    def log_odds(self, evidence: Floats) -> Floats:
        """Return the log-odds of the same meaning for rows of evidence."""
        return np.asarray(evidence @ np.array(self.weights) + self.bias)

    def spread(self, evidence: Floats) -> tuple[Floats, Floats]:
        """Return a low and a high probability: nine in ten of the replicates lie between."""
        table = np.array(self.replicates)
        ends = np.empty((2, len(evidence)))
        for start in range(0, len(evidence), _BLOCK):
            part = slice(start, start + _BLOCK)
            ends[:, part] = np.quantile(table[:, :-1] @ evidence[part].T + table[:, -1:], (0.05, 0.95), axis=0)
        return sigmoid(ends[0]), sigmoid(ends[1])


@cache
def constants() -> Constants:
    """Return the constants that this package brings."""
    content = json.loads(
        resources.files("trans_encoder.answers.probability").joinpath("constants.json").read_text(encoding="utf-8")
    )
    return Constants(
        tuple(content["features"]),
        tuple(content["weights"]),
        content["bias"],
        content["crowd"],
        tuple(tuple(one) for one in content["replicates"]),
    )


@dataclass(frozen=True)
class Scale:
    """What a scorer gives to unrelated texts of a corpus, and to the same."""

    unrelated: float
    """The median of pairs drawn at random."""
    same: float
    """The median of texts and light edits of them."""

    def __call__(self, scores: npt.NDArray[Any]) -> Floats:
        """Return scores as parts of the way from unrelated to the same."""
        span = max(self.same - self.unrelated, _LEAST_RANGE)
        return (np.asarray(scores, dtype=np.float64) - self.unrelated) / span

    def score(self, part: float) -> float:
        """Return the score at some part of the way."""
        return self.unrelated + part * max(self.same - self.unrelated, _LEAST_RANGE)

    def crowd(self, scores: npt.NDArray[Any]) -> Floats:
        """Return crowds as parts of the way; where none is known (NaN), the usual one."""
        parts = self(scores)
        return np.where(np.isnan(parts), constants().crowd, parts)


@dataclass(frozen=True)
class Probability:
    """From scores of one scorer on one corpus to probabilities."""

    scale: Scale
    scores: tuple[float, ...]
    """Knots of the curve for pairs of which nothing but the score is known."""
    probabilities: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    scorers: tuple[str, ...] = ()
    notion: str = NOTION

    def __call__(self, scores: npt.NDArray[Any]) -> Floats:
        """Return the probability for scores alone."""
        return np.interp(np.asarray(scores, dtype=np.float64), self.scores, self.probabilities)

    def interval(self, scores: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        """Return a low and a high probability for scores alone."""
        values = np.asarray(scores, dtype=np.float64)
        return np.interp(values, self.scores, self.low), np.interp(values, self.scores, self.high)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Read back what `to_dict` gave; anything else is a ValueError, KeyError or TypeError."""
        read = cls(**{**content, "scale": Scale(**content["scale"])})
        if len({len(each) for each in (read.scores, read.probabilities, read.low, read.high)}) != 1 or not read.scores:
            raise ValueError("knots of a curve are missing")
        return read


def measure_scale(rows: Embedded, embedder: Embedder, *, rng: np.random.Generator) -> Scale:
    """Score random pairs, and texts against light edits of them, by their vectors."""
    pairs = random_pairs(len(rows.texts), _RANDOM_PAIRS, rng=rng)
    unrelated = np.einsum("ij,ij->i", rows.take_vectors(pairs[:, 0]), rows.take_vectors(pairs[:, 1]))
    chosen, edited = edited_sample(rows, _EDITED, rng=rng)
    same = np.einsum("ij,ij->i", rows.take_vectors(chosen), embedder.encode(edited))
    return Scale(float(np.median(unrelated)) if len(unrelated) else 0.0, float(np.median(same)))


def estimate_probability(rows: Embedded, embedder: Embedder, dense: DenseIndex, *, seed: int = 0) -> Probability:
    """Estimate the probabilities of a corpus from a sample of its texts and their neighbours."""
    rng = np.random.default_rng(seed)
    scale = measure_scale(rows, embedder, rng=rng)
    left, right, scores, crowd = _sampled_neighbours(rows, dense, rng=rng)
    pairs = random_pairs(len(rows.texts), 4 * _SAMPLE, rng=rng)
    unrelated = np.einsum("ij,ij->i", rows.take_vectors(pairs[:, 0]), rows.take_vectors(pairs[:, 1]))
    typical = np.full(len(pairs), np.median(crowd) if len(crowd) else np.nan)
    evidence = pair_evidence(
        rows,
        np.concatenate([left, pairs[:, 0]]),
        np.concatenate([right, pairs[:, 1]]),
        scale(np.concatenate([scores, unrelated])),
        scale.crowd(np.concatenate([crowd, typical])),
    )
    return fit_curve(scale, np.concatenate([scores, unrelated]), evidence, scorers=embedder.names)


def fit_curve(scale: Scale, scores: npt.NDArray[Any], evidence: Floats, *, scorers: Sequence[str]) -> Probability:
    """Fit the isotonic curve from scores to the mean probability of the pairs that have them."""
    fitted = constants()
    # Both ends of the scale, in the usual crowd, so that there is a curve even where there are hardly any pairs.
    ends = np.zeros((2, len(fitted.features)))
    ends[:, :2] = [[0, fitted.crowd], [1, fitted.crowd]]
    evidence = np.concatenate([evidence, ends])
    scores = np.concatenate([scores, [scale.score(0), scale.score(1)]])
    low, high = fitted.spread(evidence)
    knots = np.unique(np.concatenate([np.quantile(scores, np.linspace(0, 1, _KNOTS)), [scale.unrelated, scale.same]]))
    curves = []
    for values in (sigmoid(fitted.log_odds(evidence)), low, high):
        curve = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(scores, values)
        curves.append(tuple(float(value) for value in np.maximum.accumulate(curve.predict(knots))))
    probabilities, lower, upper = curves
    return Probability(scale, tuple(float(knot) for knot in knots), probabilities, lower, upper, tuple(scorers))


def pair_evidence(rows: Embedded, left: Positions, right: Positions, score: Floats, crowd: Floats) -> Floats:
    """Return what is known of pairs, in the order of the constants' features; scores and crowd are on the scale."""
    texts = text_evidence(rows.texts, left, right)
    return np.column_stack([score, crowd, texts])


def random_pairs(count: int, number: int, *, rng: np.random.Generator) -> Positions:
    """Return pairs of different positions, drawn at random."""
    if count < 2:
        return np.empty((0, 2), dtype=np.int64)
    first = rng.integers(count, size=number)
    return np.column_stack([first, (first + rng.integers(1, count, size=number)) % count])


def edited_sample(rows: Embedded, number: int, *, rng: np.random.Generator) -> tuple[Positions, list[str]]:
    """Return positions of some texts, and these texts lightly edited."""
    chosen = np.sort(rng.choice(len(rows.texts), size=min(number, len(rows.texts)), replace=False))
    texts = [str(rows.texts[int(place)].as_py()) for place in chosen]
    return chosen, lightly_edited(texts, rng=rng)


def sigmoid(values: npt.NDArray[Any]) -> Floats:
    """Return 1 / (1 + exp(-x)) without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * np.asarray(values, dtype=np.float64))))


def logit(values: npt.NDArray[Any]) -> Floats:
    """Return log-odds, bounded where a score is all but 0 or 1."""
    clipped = np.clip(np.asarray(values, dtype=np.float64), 1e-6, 1 - 1e-6)
    return np.asarray(np.log(clipped / (1 - clipped)))


def _sampled_neighbours(
    rows: Embedded, dense: DenseIndex, *, rng: np.random.Generator
) -> tuple[Positions, Positions, Floats, Floats]:
    """Return pairs of sampled texts and their neighbours, with scores and the crowd around the sampled text."""
    count = len(rows.texts)
    chosen = np.sort(rng.choice(count, size=min(_SAMPLE, count), replace=False))
    positions, scores = dense.search(rows.take_vectors(chosen), min(_DEPTH + 1, count))
    other = (positions >= 0) & (positions != chosen[:, None])
    scores = np.where(other, scores, 0).astype(np.float64)
    near = np.zeros_like(other)
    near[:, : _NEIGHBOURS + 1] = other[:, : _NEIGHBOURS + 1]
    left, right, found = np.repeat(chosen, near.sum(axis=1)), positions[near], scores[near]
    total, number = scores.sum(axis=1), other.sum(axis=1)
    again = np.repeat(np.arange(len(chosen)), near.sum(axis=1))
    crowd = (total[again] - found) / np.where(number[again] > 1, number[again] - 1, np.nan)
    return left, right, found, crowd
