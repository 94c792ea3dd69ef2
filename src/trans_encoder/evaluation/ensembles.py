"""Ensembles: the plain mean of several scorers (section 2.4), saved ensembles, and scores of several test sets at once.

A saved ensemble is a folder with its models and `ensemble.json`: for each model its weight and the quantiles of the
scores that it gave to a sample of pairs. A score is looked up among the model's own quantiles, so that models with
different ranges count alike, and a pair's score does not depend on the other pairs. Scores beyond those of the sample
share a narrow band at either end, in which they keep their order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trans_encoder.data import PairSet, Scores, TestSet
from trans_encoder.encoders import Encoder, RankSharded, Scorer, fingerprint, load_encoder
from trans_encoder.errors import ConfigurationError
from trans_encoder.files import atomic_folder, check_replaceable, read_json, write_json

_ENSEMBLE = "ensemble.json"
_QUANTILES = 201
_TAIL = 0.5 / _QUANTILES
"""The band at either end for scores beyond those of the sample: half of what lies between two quantiles."""
_LEAST_SPAN = 1e-6


@dataclass(frozen=True, eq=False)
class Part:
    """One model of an ensemble."""

    folder: Path
    weight: float
    quantiles: Sequence[float]
    """Of the scores that it gave to a sample of pairs, evenly spaced from the lowest to the highest."""
    both_orders: bool = False
    """Whether it scores a pair in both orders and gives the mean; for cross-encoders."""

    def ranks(self, pairs: PairSet, **loading: Any) -> npt.NDArray[np.float64]:
        """Return where the model's scores lie among its scores of the sample, in (0, 1); loaded as `load_encoder`."""
        encoder = load_encoder(self.folder, **loading)
        return _places(_both_orders(encoder, pairs, both=self.both_orders), self.quantiles)


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Several models as one scorer, loaded one after the other whenever it is asked."""

    name: str
    parts: tuple[Part, ...]
    device: str | None = None
    trust_remote_code: bool = False
    kind = "ensemble"

    @classmethod
    def open(cls, folder: str | Path, *, device: str | None = None, trust_remote_code: bool = False) -> "Ensemble":
        """Open a saved ensemble, whose models are loaded on this device."""
        folder = Path(folder).expanduser()
        try:
            saved = read_json(folder / _ENSEMBLE)
            parts = [Part(**{**part, "folder": _inside(folder, part["folder"])}) for part in saved["parts"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{folder} does not hold a saved ensemble ({error}); save it again") from error
        return cls(str(folder), tuple(parts), device, trust_remote_code)

    def score(self, pairs: PairSet) -> Scores:
        """Return the weighted mean of the models' ranks, in [0, 1]."""
        loading = {"device": self.device, "trust_remote_code": self.trust_remote_code}
        ranks = [part.ranks(pairs, **loading) for part in self.parts]
        return np.average(ranks, axis=0, weights=[part.weight for part in self.parts]).astype(np.float32)

    def fingerprint(self) -> dict[str, str]:
        """Tell the ensemble apart from others: the checksums of all its files."""
        return fingerprint(self.name)


def _inside(folder: Path, name: str) -> Path:
    """Return a folder in the ensemble's; what lies elsewhere would be no part of its fingerprint."""
    if Path(name).name != name:
        raise ValueError(f"{name} is not in the folder")
    return folder / name


def is_ensemble(folder: str | Path) -> bool:
    """Whether a folder holds a saved ensemble."""
    return (Path(folder).expanduser() / _ENSEMBLE).is_file()


@dataclass(frozen=True)
class Voter:
    """A model of an ensemble that is to be saved."""

    name: str
    encoder: Encoder
    weight: float = 1.0
    both_orders: bool = False


def save_ensemble(voters: Sequence[Voter], sample: PairSet, *, out: str | Path) -> Ensemble:
    """Save models as one ensemble; the sample of pairs shows which range of scores each of them uses."""
    if len({voter.name for voter in voters}) < len(voters) or len(voters) < 2 or len(sample) < 2:
        raise ConfigurationError(
            f"an ensemble needs at least two models with different names and two pairs, got "
            f"{', '.join(voter.name for voter in voters) or 'no models'} and {len(sample)} pairs"
        )
    out, parts = Path(out), []
    check_ensemble_folder(out)
    with atomic_folder(out) as temporary:
        for voter in voters:
            scores = _both_orders(voter.encoder, sample, both=voter.both_orders)
            quantiles = np.quantile(scores.astype(np.float64), np.linspace(0, 1, _QUANTILES))
            voter.encoder.save(temporary / voter.name)
            settings = {"weight": voter.weight, "both_orders": voter.both_orders}
            parts.append({"folder": voter.name, **settings, "quantiles": quantiles.tolist()})
        write_json(temporary / _ENSEMBLE, {"parts": parts})
    return Ensemble.open(out)


def check_ensemble_folder(out: Path) -> None:
    """Refuse to replace anything but an ensemble."""
    check_replaceable(out, what="ensemble", is_ours=lambda names: _ENSEMBLE in names)


def _places(scores: Scores, quantiles: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the places of scores among quantiles; those beyond approach 0 and 1, but never reach them."""
    lowest, highest = quantiles[0], quantiles[-1]
    values, span = scores.astype(np.float64), max(highest - lowest, _LEAST_SPAN)
    below, above = np.maximum(lowest - values, 0), np.maximum(values - highest, 0)
    places = np.interp(values, quantiles, np.linspace(_TAIL, 1 - _TAIL, len(quantiles)))
    return places + _TAIL * (above / (span + above) - below / (span + below))


def _both_orders(encoder: Encoder, pairs: PairSet, *, both: bool) -> Scores:
    scores = encoder.score(pairs)
    return mean_scores([scores, encoder.score(pairs.swapped())]) if both else scores


def mean_scores(scores: Sequence[npt.NDArray[np.floating]]) -> Scores:
    """Return the mean of several scorers' scores of the same pairs, added up in double precision."""
    total = np.zeros(len(scores[0]), dtype=np.float64)
    for each in scores:
        total += each
    return (total / len(scores)).astype(np.float32)


def ensemble_scores(encoders: Sequence[Scorer], pairs: PairSet) -> Scores:
    """Return the mean score of each pair; with data-parallel ranks each scores a share, so all of them must call."""
    return mean_scores([RankSharded(encoder).score(pairs) for encoder in encoders])


def all_pairs(tests: Mapping[str, TestSet]) -> PairSet:
    """Concatenate the pairs of all test sets, so that a model scores them in one call."""
    return reduce(PairSet.concat, (test.pairs for test in tests.values()))


def by_test_set(scores: Scores, tests: Mapping[str, TestSet]) -> dict[str, Scores]:
    """Split the scores of `all_pairs` by test set."""
    ends = np.cumsum([len(test.pairs) for test in tests.values()])
    return dict(zip(tests, np.split(scores, ends[:-1]), strict=True))
