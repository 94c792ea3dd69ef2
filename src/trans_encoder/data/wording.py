"""How much of their wording two texts share: TF-IDF of letter groups, and BM25 of words; in any language."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trans_encoder.data.words import WORD

_SATURATION, _LENGTH = 1.2, 0.75  # BM25's k1 and b, at the values that are common


def shared_wording(
    first: Sequence[str], second: Sequence[str], *, known: Sequence[str] | None = None
) -> NDArray[np.float32]:
    """Return the cosine of each two texts' TF-IDF weights of groups of 3 to 5 letters within words.

    Document frequencies come from the distinct texts given, or from those in `known`.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
    vectoriser.fit(dict.fromkeys([*first, *second] if known is None else known))
    overlap = vectoriser.transform(first).multiply(vectoriser.transform(second))
    return np.asarray(overlap.sum(axis=1), dtype=np.float32).reshape(-1)


def matched_words(first: Sequence[str], second: Sequence[str]) -> NDArray[np.float32]:
    """Return the BM25 score of each two texts, as a share of what each text scores with itself; the mean of both ways.

    Document frequencies and lengths come from the distinct texts.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    vectoriser = CountVectorizer(token_pattern=f"(?u){WORD}", dtype=np.float64)
    try:
        counts = vectoriser.fit_transform(dict.fromkeys([*first, *second]))
    except ValueError:  # no text has any word
        return np.zeros(len(first), dtype=np.float32)
    frequencies = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log1p((counts.shape[0] - frequencies + 0.5) / (frequencies + 0.5))
    mean_length = counts.sum() / counts.shape[0]

    def weigh(counted: Any) -> Any:
        """Weigh words as BM25 weighs those of a document."""
        lengths = np.asarray(counted.sum(axis=1)).ravel() / mean_length
        norms = _SATURATION * (1 - _LENGTH + _LENGTH * np.repeat(lengths, np.diff(counted.indptr)))
        weights = counted.copy()
        weights.data = idf[counted.indices] * counted.data * (_SATURATION + 1) / (counted.data + norms)
        return weights

    one, other = (vectoriser.transform(texts) for texts in (first, second))
    ways = _share(one, weigh(other), weigh(one)) + _share(other, weigh(one), weigh(other))
    return np.asarray(ways / 2, dtype=np.float32)


def _share(asked: Any, other: Any, own: Any) -> NDArray[np.float64]:
    """Return what texts score with others, as a share of what they score with themselves; 0 without words."""
    found, most = (np.asarray(asked.sign().multiply(each).sum(axis=1)).ravel() for each in (other, own))
    return np.asarray(found / np.maximum(most, 1e-12), dtype=np.float64)
