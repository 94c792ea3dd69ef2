"""How candidates are scored and which of them count as the same."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trans_encoder.answers.probability import Differences, Probability, are_alike, bounded, flips_of, is_flip
from trans_encoder.answers.probability.estimate import (
    Floats,
    Scale,
    constants,
    edited_sample,
    logit,
    measure_scale,
    pair_evidence,
    random_pairs,
    sigmoid,
)
from trans_encoder.answers.retrieval import Candidates, Embedded, Embedder, crowd_of, pair_scores
from trans_encoder.data import ID, PairSet
from trans_encoder.encoders import CrossEncoder, Encoder
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.evaluation.ensembles import mean_scores

WORTH_KEEPING = 0.01
"""Candidates below this probability are counted, but neither saved nor looked at again."""
_SCALE_PAIRS = 256
_LEAST_TEXTS = 3
"""With fewer there are no unrelated texts to measure a pair against."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Candidates with what was found out about them."""

    candidates: Candidates
    scores: npt.NDArray[np.float32]
    """The bi-encoder's cosine or, where there is one, the cross-encoder's score."""
    probabilities: Floats
    low: Floats
    high: Floats
    differences: Differences
    """The flip that alone separates the two texts, or None."""
    apart: npt.NDArray[np.bool_]
    """Pairs that must not count as the same."""


def score_candidates(
    rows: Embedded,
    candidates: Candidates,
    probability: Probability,
    *,
    crosses: Sequence[CrossEncoder] = (),
    flips: bool = False,
    seed: int = 0,
) -> Scored:
    """Score candidates by their vectors and, where there are some, by cross-encoders too.

    A cross-encoder looks at the pairs that vectors leave a chance; it is hundreds of times as slow. Pairs that differ
    by a flip alone are set apart, unless `flips` lets them count as the same.
    """
    fitted, own = constants(), probability.scale
    scores = candidates.scores
    evidence = pair_evidence(rows, candidates.left, candidates.right, own(scores), own.crowd(candidates.crowd))
    differences = flips_of(rows.texts, candidates.left, candidates.right)
    differ, alike = is_flip(differences), are_alike(rows.texts, candidates.left, candidates.right)
    again = np.flatnonzero((sigmoid(fitted.log_odds(evidence)) >= WORTH_KEEPING) | differ | alike)
    if crosses and len(again):
        left, right = candidates.left[again], candidates.right[again]
        opinions = [cross_scores(rows, left, right, cross) for cross in crosses]
        scales = [_cross_scale(rows, cross, rng=np.random.default_rng(seed)) for cross in crosses]
        scores = np.full(len(candidates), np.nan, dtype=np.float32)  # NaN reaches no threshold
        scores[again] = mean_scores(opinions)
        second = np.mean([scale(logit(one)) for scale, one in zip(scales, opinions, strict=True)], axis=0)
        # The mean of both kinds, each on its own scale, is better than either, as a team's is.
        evidence[again, 0] = (evidence[again, 0] + second) / 2
    apart = differ & (not flips)
    likely = (sigmoid(fitted.log_odds(evidence)), *fitted.spread(evidence))
    probabilities, low, high = (bounded(values, flipped=apart, alike=alike) for values in likely)
    return Scored(candidates, scores, probabilities, low, high, differences, apart)


def cross_scores(
    rows: Embedded, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], cross: CrossEncoder
) -> npt.NDArray[np.float32]:
    """Score pairs of texts in both orders, because sameness has no direction; return the means."""
    first, second = (rows.texts.take(pa.array(position)).to_pylist() for position in (left, right))
    both = cross.score(PairSet.from_lists(first + second, second + first))
    return np.asarray((both[: len(left)] + both[len(left) :]) / 2, dtype=np.float32)


def _cross_scale(rows: Embedded, cross: CrossEncoder, *, rng: np.random.Generator) -> Scale:
    """Score random pairs, and texts against light edits of them, by a cross-encoder; the scale is of log-odds."""
    pairs = random_pairs(len(rows.texts), _SCALE_PAIRS, rng=rng)
    unrelated = cross_scores(rows, pairs[:, 0], pairs[:, 1], cross)
    chosen, edited = edited_sample(rows, _SCALE_PAIRS, rng=rng)
    same = cross.score(PairSet.from_lists(rows.texts.take(pa.array(chosen)).to_pylist(), edited))
    return Scale(float(np.median(logit(unrelated))), float(np.median(logit(same))))


def pair_probabilities(pairs: PairSet, encoder: Encoder, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Return what an encoder scores pairs, and how likely each is the same; their own texts are the corpus."""
    distinct = pairs.distinct()
    if len(distinct.sentences) < _LEAST_TEXTS:
        raise DataError(
            f"{len(distinct.sentences)} different texts are no corpus to measure probabilities against; "
            f"give at least {_LEAST_TEXTS}, better hundreds, or ask for scores"
        )
    left, right = (np.asarray(side, dtype=np.int64) for side in distinct.index.T)
    texts = pa.chunked_array([distinct.sentences])
    ids = pa.table({ID: pa.array([str(number) for number in range(len(texts))])})
    rows = Embedded(ids, np.arange(len(texts)), texts, np.empty((len(texts), 0), dtype=np.float32))
    if isinstance(encoder, CrossEncoder):
        scores = encoder.score(pairs).astype(np.float64)
        part = _cross_scale(rows, encoder, rng=np.random.default_rng(seed))(logit(scores))
        crowd = np.full(len(pairs), constants().crowd)
    else:
        embedder = Embedder((encoder,))
        rows = replace(rows, vectors=embedder.encode(distinct.sentences.to_pylist()))
        scale = measure_scale(rows, embedder, rng=np.random.default_rng(seed))
        scores = pair_scores(rows, left, right).astype(np.float64)
        part, crowd = scale(scores), scale.crowd(crowd_of(rows, left, right, scores))
    likely = sigmoid(constants().log_odds(pair_evidence(rows, left, right, part, crowd)))
    flipped = is_flip(flips_of(rows.texts, left, right))
    return scores, bounded(likely, flipped=flipped, alike=are_alike(rows.texts, left, right))


def decide(scored: Scored, *, precision: float | None, threshold: float | None) -> tuple[npt.NDArray[np.bool_], float]:
    """Return which candidates count as the same, and the least probability (or score, with `threshold`) of these.

    With `precision`, as many as keep the expected share of true ones; else as many as give the best expected F1.
    """
    if precision is not None and threshold is not None:
        raise ConfigurationError("give either a precision or a threshold, not both")
    if threshold is not None:
        return (scored.scores >= threshold) & ~scored.apart, threshold
    if precision is not None and not 0 < precision < 1:
        raise ConfigurationError(f"precision must lie between 0 and 1, not {precision:g}; 0.9 asks for 9 true in 10")
    order = np.argsort(-scored.probabilities, kind="stable")
    order = order[~scored.apart[order]]
    expected = np.cumsum(scored.probabilities[order])
    taken = np.arange(1, len(order) + 1)
    if precision is not None:
        kept = int((expected / taken >= precision).sum())
    else:
        kept = int(np.argmax(2 * expected / (taken + scored.probabilities.sum()))) + 1 if len(order) else 0
    chosen = np.zeros(len(scored.scores), dtype=bool)
    chosen[order[:kept]] = True
    least = float(scored.probabilities[order[kept - 1]]) if kept else 1.0
    return chosen, least
