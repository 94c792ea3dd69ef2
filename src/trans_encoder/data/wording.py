"""How much of their wording two texts share: cosines of TF-IDF weights of letter groups, in any language."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


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
