"""Pairs that are mined again for a later cycle, with the bi-encoders that the cycle before has made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.team import ModelRef
from trans_encoder.errors import RunError


class Miner(Protocol):
    """Finds pairs with the help of bi-encoders; the same ones find the same pairs. Small enough to be sent around."""

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """Tell apart miners that find different pairs: their text and settings."""

    def __call__(self, encoders: Sequence[ModelRef], *, cycle: int) -> PairSet:
        """Return the pairs of a cycle."""


@dataclass(frozen=True)
class MineAgain:
    """Put pairs for a later cycle into the run folder, none of which was held out to judge by."""

    miner: Miner
    encoders: tuple[ModelRef, ...]
    cycle: int
    held_out: PairSet | None

    def __call__(self, path: Path) -> None:
        """Write the pairs."""
        pairs = self.miner(self.encoders, cycle=self.cycle)
        if self.held_out is not None:
            pairs = pairs.without(self.held_out)
        if len(pairs) < 2:
            raise RunError(
                f"cycle {self.cycle}: mining again gave {len(pairs)} pairs that are not held out, a cycle needs at "
                f"least 2; give more text, or train without remine"
            )
        pairs.save(path)
