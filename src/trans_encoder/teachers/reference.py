"""Models by reference, loaded when they are asked to do something, so that one at a time is in memory."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from trans_encoder.config import PoolingMode
from trans_encoder.data import PairSet, Scores
from trans_encoder.encoders import BiEncoder, CrossEncoder, Encoder, Kind, Prompts
from trans_encoder.encoders.loading import Precision, fingerprint
from trans_encoder.encoders.passes import mean_with_dropout
from trans_encoder.errors import DataError

_MOST_UNKNOWN = 0.5  # with a larger share of unknown tokens, texts cannot be told apart


@dataclass(frozen=True)
class ModelRef:
    """A model in a folder or on the hub, loaded whenever it is asked to do something; a `Teacher`."""

    name: str
    """The member it belongs to."""
    kind: Kind
    source: str
    """A folder or a hub name."""
    max_tokens: int | None
    """What longer texts are cut to; the model's own length if None."""
    pooling: PoolingMode | None = None
    prompts: Prompts = None
    """What is put before the texts of each side; the model's own if None."""
    device: str | None = None
    trust_remote_code: bool = False
    precision: Precision = "fp32"
    """Number format of scoring."""
    fast: bool | None = None
    """Whether the CPU speed-ups are used; see `trans_encoder.encoders.runners`."""
    both_orders: bool = False
    """Whether a cross-encoder scores every pair in both orders and gives the mean."""
    passes: int = 0
    """How often pairs are scored with dropout, for the mean; 0: once, without it."""

    def load(self, *, seed: int = 0) -> Encoder:
        """Load the model; a cross-encoder's head that it does not have yet is drawn from `seed`."""
        names = ("max_tokens", "device", "trust_remote_code", "fast")
        settings = {name: getattr(self, name) for name in names}
        encoder: Encoder
        if self.kind == "cross":
            encoder = CrossEncoder.load(self.source, seed=seed, **settings)
        else:
            encoder = BiEncoder.load(self.source, pooling=self.pooling, prompts=self.prompts, **settings)
        encoder.precision = self.precision
        return encoder

    def load_for(self, pairs: PairSet) -> Encoder:
        """Load the model; refuse texts that are mostly unknown to it."""
        encoder = self.load()
        unknown = encoder.tokeniser.unknown_share(pairs, max_tokens=encoder.max_tokens)
        if unknown > _MOST_UNKNOWN:
            raise DataError(
                f"{unknown:.0%} of the texts' tokens are unknown to {self.name} ({self.source}), so its scores mean "
                f"nothing; give a model that knows the language and script, such as a multilingual one"
            )
        return encoder

    def score(self, pairs: PairSet) -> Scores:
        """Load the model, score pairs, let it go."""
        if self.passes:
            encoder = replace(self, fast=False).load_for(pairs)
            score: Callable[[PairSet], Scores] = partial(mean_with_dropout, encoder, passes=self.passes)
        else:
            encoder = self.load_for(pairs)
            score = encoder.score
        scores = score(pairs)
        if self.kind == "cross" and self.both_orders:
            return np.asarray((scores + score(pairs.swapped())) / 2, dtype=np.float32)
        return scores

    def at(self, source: str | Path, **changes: Any) -> Self:
        """Return a reference to another model that is loaded in the same way, except for the changes."""
        return replace(self, source=str(source), **changes)

    def fingerprint(self) -> dict[str, str]:
        """Tell the model apart from others: see `encoders.loading.fingerprint`."""
        return fingerprint(self.source)
