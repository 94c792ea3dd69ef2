"""How similar the two texts of a mined pair are: bands of similarity, and the mix of them."""

from typing import Literal, get_args

import numpy as np
from pydantic import Field

from trans_encoder.config import Frozen
from trans_encoder.errors import ConfigurationError

Band = Literal["near", "middle", "far", "random", "parts"]
RANKED: tuple[Band, ...] = ("near", "middle", "far")
DEPTH = 1000
"""The deepest rank at which a neighbour is taken."""


class Mix(Frozen):
    """Shares of the bands among the mined pairs; they are divided by their sum.

    In a search over more than 1000 sentences, near neighbours are at ranks 1-10, middle ones at 11-100 and far ones at
    101-1000 (see `rank_limits`). A random pair joins any two sentences of the text; parts are two overlapping
    or neighbouring parts of one sentence.
    """

    near: float = Field(default=0, ge=0)
    """Share of near neighbours."""
    middle: float = Field(default=0, ge=0)
    """Share of neighbours further down."""
    far: float = Field(default=0, ge=0)
    """Share of distant neighbours: still related, barely alike."""
    random: float = Field(default=0, ge=0)
    """Share of random pairs."""
    parts: float = Field(default=0, ge=0)
    """Share of pairs made of two parts of a sentence."""

    @classmethod
    def parse(cls, text: str) -> "Mix":
        """Read the shares of all bands, in their order, from text such as 4,2,2,2,0."""
        try:
            return cls(**dict(zip(get_args(Band), map(float, text.split(",")), strict=True)))
        except ValueError:
            raise ConfigurationError(
                f"got the mix {text}, expected five shares of at least 0, such as 4,2,2,2,0"
            ) from None

    @property
    def has_neighbours(self) -> bool:
        """Whether any pair has to be searched for."""
        return any(getattr(self, band) > 0 for band in RANKED)

    def counts(self, pairs: int) -> dict[Band, int]:
        """Divide `pairs` among the bands."""
        shares: dict[Band, float] = {band: getattr(self, band) for band in get_args(Band)}
        total = sum(shares.values())
        if total <= 0:
            raise ConfigurationError("the mix of the bands of pairs is all zero; give at least one share")
        edges = np.rint(np.cumsum([0.0, *shares.values()]) / total * pairs).astype(int)
        return {band: int(count) for band, count in zip(shares, np.diff(edges), strict=True)}


DEFAULT_MIX = Mix(parts=1)
"""Parts alone: what teaches best of all mixes tried on Wikipedia (docs/studies.md)."""


def rank_limits(sentences: int) -> dict[Band, tuple[int, int]]:
    """Return the slice of ranks that is each band: three parts of the ranks searched, each wider by the same factor."""
    depth = min(DEPTH, max(sentences - 1, 0))
    edges = [0, round(depth ** (1 / 3)), round(depth ** (2 / 3)), depth]
    return {band: (edges[i], edges[i + 1]) for i, band in enumerate(RANKED)}
