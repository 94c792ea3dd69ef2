"""What scores pairs, and scoring that is sharded over the ranks of a data-parallel run."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trans_encoder.data import PairSet
from trans_encoder.ranks import shared_out


class Scorer(Protocol):
    """Anything that scores pairs: an encoder, or something that loads one when it is used."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kind(self) -> str:
        """`bi` if its scores are cosines, `cross` if they are probabilities; anything else may use any scale."""

    def score(self, pairs: PairSet) -> NDArray[np.float32]:
        """Return one score for each pair."""


@dataclass(frozen=True)
class RankSharded:
    """A scorer that every rank holds: each scores a share of the pairs, so all of them must call it.

    A scorer whose scores depend on all the pairs (`needs_all_pairs`) scores them on every rank.
    """

    model: Scorer

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def kind(self) -> str:
        """The model's kind."""
        return self.model.kind

    def score(self, pairs: PairSet) -> NDArray[np.float32]:
        """Return one score for each pair, in order, on every rank."""
        if getattr(self.model, "needs_all_pairs", False):
            return self.model.score(pairs)
        return shared_out(lambda rows: self.model.score(pairs.between(rows.start, rows.stop)), count=len(pairs))
