"""What a number of checked pairs promises about all the others: exact bounds, and the largest set that keeps a promise.

Pairs are ranked by probability and cut into bands of equal size, and people check equally many pairs of each band. So
the checked pairs of the first bands together are a proportional sample of these bands, and no weights are needed. The
number of right ones in a stratified sample varies no more than a binomial number of the same mean (Hoeffding 1956,
theorem 5), so the exact binomial bound of Clopper and Pearson holds for it.

Which set is kept depends on the answers, so several bounds are tested. They are tested in an order fixed beforehand,
from the strictest set to the loosest, and the first failure ends it: such a sequence is wrong no more often than a
single test.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from trans_encoder.errors import ConfigurationError

_BANDS = 10


@dataclass(frozen=True)
class Promise:
    """How far down the ranking the precision is at least `precision`, at the stated confidence."""

    precision: float
    confidence: float
    bands: int
    """How many bands are kept; 0 if the answers do not support the promise for any."""
    right: int
    """Checked pairs of these bands that mean the same."""
    checked: int
    bound: float
    """The precision of the kept bands is at least this, at the stated confidence; 0 if none is kept."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


def lower_bound(right: int, checked: int, *, confidence: float) -> float:
    """Return Clopper and Pearson's exact one-sided lower bound of a share."""
    from scipy.stats import beta

    return float(beta.ppf(1 - confidence, right, checked - right + 1)) if right > 0 else 0.0


def keep_promise(right: Sequence[int], checked: int, *, precision: float, confidence: float) -> Promise:
    """Return the largest number of bands whose precision is proved, given the right ones of `checked` in each band."""
    for name, value in (("precision", precision), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ConfigurationError(f"{name} must lie between 0 and 1, not {value:g}; 0.9 means 9 in 10")
    best = Promise(precision, confidence, bands=0, right=sum(right), checked=checked * len(right), bound=0.0)
    for bands in range(_first(len(right), checked, precision=precision, confidence=confidence), len(right) + 1):
        good, number = sum(right[:bands]), checked * bands
        bound = lower_bound(good, number, confidence=confidence)
        if bound < precision:
            break
        best = Promise(precision, confidence, bands, good, number, bound)
    return best


def _first(bands: int, checked: int, *, precision: float, confidence: float) -> int:
    """Return the fewest bands that can pass with one wrong pair: fewer would fail too easily and end the sequence."""
    for one in range(1, bands):
        if lower_bound(one * checked - 1, one * checked, confidence=confidence) >= precision:
            return one
    return bands


@dataclass(frozen=True)
class Draw:
    """Which of ranked pairs to check."""

    bands: int
    band_size: int
    order: list[tuple[int, int]]
    """Band and rank of each pair to check; every `bands` of them are a round with one pair of each band."""


def draw_pairs(ranked: int, checked: int, *, seed: int = 0) -> Draw:
    """Draw about `checked` of the first `ranked` pairs, equally many of each band; a rest at the end is left out."""
    random = Random(seed)
    bands = min(_BANDS, ranked)
    size = ranked // bands
    rounds = min(max(checked // bands, 1), size)
    chosen = [random.sample(range(band * size, (band + 1) * size), rounds) for band in range(bands)]
    order: list[tuple[int, int]] = []
    for one in range(rounds):
        mixed = list(range(bands))
        random.shuffle(mixed)  # so that the place in the queue does not give the probability away
        order += [(band, chosen[band][one]) for band in mixed]
    return Draw(bands, size, order)
