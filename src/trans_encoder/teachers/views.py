"""A test without labels of whether a student is better than its start.

The judge by views (`weigh_views`) rests on scorers that do not come from the start: other members' starts and frozen
teachers. A one-factor model of the start and these views estimates, without labels, how closely each follows what they
all measure. The student is then written as a mix of the same scorers plus a rest of its own. A student that moved
towards views which are worth it gains; one that only moved away from all of them loses.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trans_encoder.data import Scores
from trans_encoder.runs import Evidence
from trans_encoder.teachers.scales import uniform_ranks

FEWEST_VIEWS = 2
"""With the start, three scorers identify a one-factor model."""
_RESAMPLES, _LEVEL, _FACTOR_STEPS = 1000, 0.95, 50
_SAME = 0.999  # rank correlation from which two scorers count as one
_HIGHEST_LOADING = 0.98  # a scorer that equals the factor would leave nothing to the others
Floats = NDArray[np.float64]


def weigh_views(start: Scores, student: Scores, views: Mapping[str, Scores]) -> Evidence | None:
    """Estimate how much better a student ranks pairs than its start; None with too few views to tell.

    Views must not come from the start. That the student learnt from them is allowed for: what it only took over of a
    view's errors counts as error.
    """
    ranks = {"": _standard_ranks(start)}
    for name, scores in views.items():
        if not np.isnan(scores).any() and np.ptp(scores) > 0:
            own = _standard_ranks(scores)
            # A copy of the start, or of another view, is not a second opinion.
            if all(np.mean(own * other) < _SAME for other in ranks.values()):
                ranks[name] = own
    _, *known = ranks
    if len(known) < FEWEST_VIEWS:
        return None
    columns = np.stack([*ranks.values(), _standard_ranks(student)], axis=1)
    gains = 100 * _gains(_resampled_correlations(columns))
    low, high = np.quantile(gains[1:], [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Evidence(gain=float(gains[0]), low=float(low), high=float(high), pairs=len(start), views=tuple(known))


def _gains(correlations: Floats) -> Floats:
    """Return, for each matrix of (start, views, student), the student's loading on the common factor minus the start's.

    The student's follows from its regression on the others: the rest, which none of them shares, is taken for noise.
    """
    scorers = correlations[:, :-1, :-1]
    loadings = _loadings(scorers)
    # Resamples of few pairs can make two scorers alike, so the matrix need not have an inverse.
    shares = (np.linalg.pinv(scorers, hermitian=True) @ correlations[:, :-1, -1:])[..., 0]
    return np.asarray((shares * loadings).sum(axis=1) - loadings[:, 0], dtype=np.float64)


def _loadings(correlations: Floats) -> Floats:
    """Fit one-factor models to a stack of correlation matrices by principal axis factoring."""
    places = np.arange(correlations.shape[-1])
    reduced = correlations.copy()
    # The diagonal holds the communalities, which depend on the loadings: start at 0.5 and iterate.
    communalities = np.full(correlations.shape[:-1], 0.5)
    for _ in range(_FACTOR_STEPS):
        reduced[:, places, places] = communalities
        values, vectors = np.linalg.eigh(reduced)
        loadings = np.abs(vectors[..., -1]) * np.sqrt(np.maximum(values[..., -1:], 0.0))
        loadings = np.clip(loadings, 1e-3, _HIGHEST_LOADING)
        communalities = loadings**2
    return np.asarray(loadings, dtype=np.float64)


def _standard_ranks(scores: Scores) -> Floats:
    ranks = uniform_ranks(scores)
    return np.asarray((ranks - ranks.mean()) / max(float(ranks.std()), 1e-9), dtype=np.float64)


def _resampled_correlations(columns: Floats) -> Floats:
    """Return the correlations of columns, then those of as many bootstrap resamples of the rows."""
    rows, width = columns.shape
    # A resample is a weight for each row, so all resamples are two matrix products; the first is the sample itself.
    weights = np.ones((_RESAMPLES + 1, rows))
    weights[1:] = np.random.default_rng(0).multinomial(rows, np.full(rows, 1 / rows), size=_RESAMPLES)
    means = weights @ columns / rows
    products = (columns[:, :, None] * columns[:, None, :]).reshape(rows, -1)
    covariances = (weights @ products / rows).reshape(-1, width, width) - means[:, :, None] * means[:, None, :]
    spreads = np.sqrt(np.maximum(np.einsum("bii->bi", covariances), 1e-12))
    return np.asarray(covariances / (spreads[:, :, None] * spreads[:, None, :]), dtype=np.float64)
