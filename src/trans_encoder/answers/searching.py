"""Search: neighbours by vectors and by words, fused by rank, re-ranked by a cross-encoder if there is one."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trans_encoder.answers.filters import matching
from trans_encoder.answers.probability import adjusted
from trans_encoder.answers.retrieval import QUERY, Embedded, Positions
from trans_encoder.data import PairSet
from trans_encoder.data.words import is_encodable
from trans_encoder.encoders import CrossEncoder
from trans_encoder.errors import DataError

if TYPE_CHECKING:
    from trans_encoder.answers.index import Index

_DEPTH = 100
"""Texts that each kind of search brings, at the least."""
MOST_UNUSED = 256
"""Texts that no row has any more for which a search makes room, at the most."""
_LOOKED_AT = 32
"""Texts that a cross-encoder re-ranks, at the least."""
_RANK = 60  # the usual constant of reciprocal rank fusion
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Hit:
    """A row, how near it is to the text that was searched for, and its other columns."""

    id: str
    text: str
    score: float
    """The cross-encoder's score if there is one, else the cosine."""
    probability: float
    """An estimate of how likely the row means the same as the text that was searched for."""
    columns: dict[str, Any]
    differs: str | None = None
    """The flip that alone separates the two texts, such as a negation; the probability is low then."""

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)


def search(index: "Index", text: str, *, top: int, where: str | None, cross: CrossEncoder | None) -> list[Hit]:
    """Return the `top` rows nearest to a text among those that meet a condition (see `filters`), best first."""
    if not text.strip():
        raise DataError("the text to search for is empty; give some words")
    if not is_encodable(text):
        raise DataError(f"the text to search for, {text!a}, holds a surrogate, which is no character; leave it out")
    rows = index.embedded
    allowed = _allowed(rows, where)
    depth = max(_DEPTH, top) + min(rows.unused, MOST_UNUSED)
    vector = index.embedder.encode([text], side=QUERY)
    dense = _dense(index, vector, depth) if allowed is None else _exact(rows, vector[0], np.flatnonzero(allowed), depth)
    lexical = index.lexical.search(text, depth if allowed is None else len(rows.texts))[0]
    if allowed is not None:
        lexical = lexical[allowed[lexical]][:depth]
    fused = _fused(dense, lexical)
    found = fused[rows.first_row[fused] >= 0][: max(top, _LOOKED_AT)]
    cosines = rows.take_vectors(found) @ vector[0]
    texts = rows.texts.take(pa.array(found)).to_pylist()
    # Probabilities are of two texts of the index, which have one prompt.
    alike = (
        cosines if not index.embedder.asks_otherwise else rows.take_vectors(found) @ index.embedder.encode([text])[0]
    )
    scores, likely = cosines, adjusted(text, texts, index.probability(alike))
    if cross is not None and len(found):
        scores = cross.score(PairSet.from_lists([text] * len(texts), texts))
        order = np.argsort(-scores, kind="stable")
        found, scores, likely = found[order], scores[order], [likely[place] for place in order]
    return _hits(rows, found, scores, likely, where=where, top=top)


def _allowed(rows: Embedded, where: str | None) -> npt.NDArray[np.bool_] | None:
    """Return which texts have a row that meets the condition; None if there is no condition."""
    if where is None:
        return None
    allowed = np.zeros(len(rows.texts), dtype=bool)
    allowed[rows.place[matching(rows.rows, where)]] = True
    return allowed


def _dense(index: "Index", vector: npt.NDArray[np.float32], depth: int) -> Positions:
    positions: Positions = index.dense.search(vector, depth)[0][0]
    return positions[positions >= 0]


def _exact(rows: Embedded, vector: npt.NDArray[np.float32], allowed: Positions, depth: int) -> Positions:
    """Compare with every text that is allowed: a filter may leave few, and few of these in the nearest clusters."""
    parts = [rows.take_vectors(allowed[start : start + _BLOCK]) @ vector for start in range(0, len(allowed), _BLOCK)]
    scores = np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)
    return allowed[np.argsort(-scores, kind="stable")[:depth]]


def _fused(*rankings: Positions) -> Positions:
    """Fuse rankings by the sums of their reciprocal ranks."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, position in enumerate(ranking.tolist(), start=1):
            scores[position] = scores.get(position, 0.0) + 1 / (_RANK + rank)
    return np.array(sorted(scores, key=lambda position: -scores[position]), dtype=np.int64)


def _hits(
    rows: Embedded,
    found: Positions,
    scores: npt.NDArray[np.float32],
    likely: Sequence[tuple[float, str | None]],
    *,
    where: str | None,
    top: int,
) -> list[Hit]:
    """Return the rows that have the texts which were found."""
    allowed = None if where is None else matching(rows.rows, where)
    hits: list[Hit] = []
    for position, score, (probability, differs) in zip(found.tolist(), scores.tolist(), likely, strict=True):
        for row in np.flatnonzero(rows.place == position).tolist():
            if allowed is None or allowed[row]:
                columns = rows.columns(row)
                values = round(score, 6), round(probability, 6), columns, differs
                hits.append(Hit(rows.ids[row], rows.text(row), *values))
        if len(hits) >= top:
            break
    return hits[:top]
