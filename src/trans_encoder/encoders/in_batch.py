"""What several bi-encoders, together, say of every two sentences of a batch.

A batch of n sentences has n(n - 1) cosines, and teaching all of them costs no more forward passes than teaching those
of its pairs. The teachers' embeddings are computed once, before the training.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trans_encoder.data import Scores
from trans_encoder.encoders.tokens import Integers

_RANDOM_PAIRS = 20_000  # an encoder's scale is measured on these
Floats = NDArray[np.float64]


class Scale(NamedTuple):
    """How cosines of random pairs are distributed."""

    mean: float
    spread: float


class Similarities:
    """The mean cosine of every two sentences over several encoders, on a common scale.

    Encoders use different parts of the range: two unrelated sentences have a cosine of 0.05 for one, 0.7 for another.
    In standard deviations from that, they agree on what is unusual.
    """

    def __init__(self, embeddings: Sequence[NDArray[np.floating]], *, weights: Sequence[float] | None = None) -> None:
        """Take each encoder's embeddings of the same sentences, which may be mapped from a file, and its weight."""
        self._weights = weights
        self._encoders = [each if each.dtype == np.float16 else unit_vectors(each) for each in embeddings]
        count = len(self._encoders[0])
        first, second = np.random.default_rng(0).integers(count, size=(2, _RANDOM_PAIRS))
        differ = first != second
        self._random = first[differ], second[differ]
        self.scales = [_scale_of(self._cosines(each)) for each in self._encoders]

    def __call__(self, rows: Integers) -> Floats:
        """Return the mean cosine of every two of these sentences, in standard deviations of random pairs' cosines."""
        return self._mean(unit[rows].astype(np.float64) @ unit[rows].T.astype(np.float64) for unit in self._encoders)

    def random_spread(self) -> float:
        """Return the spread of the mean among random pairs: below 1, because encoders err differently."""
        return max(float(self._mean(map(self._cosines, self._encoders)).std()), 1e-6)

    def _mean(self, cosines: Iterable[NDArray[np.floating]]) -> Floats:
        standard = [(each - scale.mean) / scale.spread for each, scale in zip(cosines, self.scales, strict=True)]
        return np.asarray(np.average(standard, axis=0, weights=self._weights), dtype=np.float64)

    def _cosines(self, unit: NDArray[np.float16]) -> NDArray[np.float32]:
        first, second = (unit[rows].astype(np.float32) for rows in self._random)
        return np.asarray(np.einsum("ij,ij->i", first, second), dtype=np.float32)


class InBatch:
    """Targets for the cosines of a student's batches: the teachers' similarities on the scale of its own start."""

    def __init__(
        self,
        sentences: pa.Array,
        embeddings: Sequence[NDArray[np.floating]],
        *,
        weight: float,
        shares: Sequence[float] | None = None,
    ) -> None:
        """Take each teacher's embeddings of the sentences, those of the student's own start first.

        `weight` is that of the loss, `shares` are those of the teachers.
        """
        self.sentences = sentences
        self.weight = weight
        self._similarities = Similarities(embeddings, weights=shares)
        own = self._similarities.scales[0]
        self._own = Scale(own.mean, own.spread / self._similarities.random_spread())

    def __call__(self, rows: Integers) -> Scores:
        """Return what the cosine of every two of these sentences should be."""
        targets = self._own.mean + self._own.spread * self._similarities(rows)
        return np.asarray(targets.clip(-1, 1), dtype=np.float32)


def unit_vectors(embeddings: NDArray[np.floating]) -> NDArray[np.float16]:
    """Return unit vectors; half precision is exact enough for a target and halves the memory."""
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return np.asarray(embeddings / np.maximum(norms, 1e-12), dtype=np.float16)


def _scale_of(cosines: NDArray[np.float32]) -> Scale:
    return Scale(float(cosines.mean()), max(float(cosines.std()), 1e-6))
