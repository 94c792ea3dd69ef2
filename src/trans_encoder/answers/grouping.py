"""Groups out of pairs: average linkage, so that one weak link does not join two groups."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from trans_encoder.answers.retrieval import Embedded, Positions

_LOOKED_AT = 40
"""Members of a side that a merge of large groups is decided on."""

Likely = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float64]]
"""From scores of vectors to probabilities."""


class Grouper:
    """Merges groups along pairs, most probable first, if on average their members are the same.

    The probability of two members that were never compared as a pair comes from their vectors. Pairs that are set
    apart are never in one group, whatever else links them.
    """

    def __init__(self, rows: Embedded, likely: Likely, *, decision: float) -> None:
        """Take the texts, the map from scores of their vectors to probabilities and the least mean to merge at."""
        self._rows, self._likely, self._decision = rows, likely, decision
        self._known: dict[tuple[int, int], float] = {}
        self._apart: dict[int, list[int]] = {}
        self._group: dict[int, int] = {}
        self._members: dict[int, list[int]] = {}

    def keep_apart(self, left: Positions, right: Positions) -> None:
        """Name pairs that must not be in one group."""
        for a, b in zip(left.tolist(), right.tolist(), strict=True):
            self._apart.setdefault(a, []).append(b)
            self._apart.setdefault(b, []).append(a)

    def merge(self, left: Positions, right: Positions, probabilities: npt.NDArray[np.float64]) -> list[list[int]]:
        """Return the groups of two or more positions, largest first."""
        pairs = list(zip(left.tolist(), right.tolist(), probabilities.tolist(), strict=True))
        self._known = {(min(a, b), max(a, b)): probability for a, b, probability in pairs}
        for a, b, _ in sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1])):
            first, second = self._of(a), self._of(b)
            if first == second or self._are_apart(first, second):
                continue
            if self._agree(self._members[first], self._members[second]):
                self._join(first, second)
        groups = [sorted(members) for members in self._members.values() if len(members) > 1]
        return sorted(groups, key=lambda members: (-len(members), members[0]))

    def _of(self, position: int) -> int:
        if position not in self._group:
            self._group[position] = position
            self._members[position] = [position]
        return self._group[position]

    def _join(self, first: int, second: int) -> None:
        if len(self._members[first]) < len(self._members[second]):
            first, second = second, first
        moved = self._members.pop(second)
        self._members[first] += moved
        self._group.update(dict.fromkeys(moved, first))

    def _are_apart(self, first: int, second: int) -> bool:
        return any(self._group.get(b) == second for a in self._members[first] for b in self._apart.get(a, ()))

    def _agree(self, first: list[int], second: list[int]) -> bool:
        """Return whether the members of two groups are the same on average."""
        if len(first) == len(second) == 1:
            return True
        first, second = _some(first), _some(second)
        scores = self._rows.take_vectors(first) @ self._rows.take_vectors(second).T
        probabilities = self._likely(scores.ravel()).reshape(scores.shape)
        for row, a in enumerate(first):
            for column, b in enumerate(second):
                known = self._known.get((min(a, b), max(a, b)))
                if known is not None:
                    probabilities[row, column] = known
        return bool(probabilities.mean() >= self._decision)


def representative(rows: Embedded, members: Sequence[int]) -> int:
    """Return the member that is nearest to all of its group."""
    vectors = rows.take_vectors(members)
    return int(members[int(np.argmax(vectors @ vectors.mean(axis=0)))])


def _some(members: list[int]) -> list[int]:
    if len(members) <= _LOOKED_AT:
        return members
    return [members[int(place)] for place in np.linspace(0, len(members) - 1, _LOOKED_AT)]
