"""Probes for validation without labels: held-out pairs, the same lightly edited, and how much wording each pair shares.

Words are what white space separates, so that no language is assumed; a text of few words is edited letter by letter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trans_encoder.data import PairSet, Scores
from trans_encoder.data.words import joined, words_of
from trans_encoder.errors import DataError
from trans_encoder.evaluation.metrics import spearman


@dataclass(frozen=True, eq=False)
class Probes:
    """What every encoder of a run scores to be validated without labels."""

    pairs: PairSet
    """The held-out pairs, then the same pairs with a lightly edited first sentence."""
    overlap: Scores
    """Cosines of TF-IDF weights of letter groups, one for each of `pairs`: shared wording."""

    @property
    def held_out(self) -> PairSet:
        """The held-out pairs alone."""
        return self.pairs.between(0, len(self.pairs) // 2)

    def overlap_agreement(self, scores: Scores) -> float:
        """Return the rank agreement x100 with shared wording: a poor judge whose errors no training shares."""
        count = len(scores) // 2
        return agreement(scores[:count], self.overlap[:count])

    def edit_agreement(self, scores: Scores) -> float:
        """Return the rank agreement x100 with itself under a light edit: a score that one upsets rests on noise."""
        count = len(scores) // 2
        return agreement(scores[:count], scores[count:])


def make_probes(held_out: PairSet, *, seed: int) -> Probes:
    """Make probes of held-out pairs; the same seed gives the same edits."""
    random = np.random.default_rng(seed)
    first, second = held_out.sentence1.to_pylist(), held_out.sentence2.to_pylist()
    if len(held_out) < 2:
        raise DataError(
            f"{len(held_out)} held-out pairs are too few to validate by: too few of the pairs differ; "
            "give more pairs, a dev set, or selection=last"
        )
    left, right = first + [light_edit(text, random=random) for text in first], second * 2
    return Probes(PairSet.from_lists(left, right), word_overlap(left, right, known=[*first, *second]))


def agreement(scores: Scores, reference: Scores) -> float:
    """Return Spearman's rho x100; 0 if either scores all pairs alike."""
    return spearman(scores, reference) if np.ptp(scores) > 0 and np.ptp(reference) > 0 else 0.0


def light_edit(text: str, *, random: np.random.Generator) -> str:
    """Drop one word or swap two neighbours; a text of one word stays."""
    words = words_of(text)
    if len(words) < 2:
        return text
    place = int(random.integers(len(words) - 1))
    if random.random() < 0.5:
        del words[place]
    else:
        words[place], words[place + 1] = words[place + 1], words[place]
    return joined(words, like=text)


def word_overlap(first: Sequence[str], second: Sequence[str], *, known: Sequence[str] | None = None) -> Scores:
    """Return the cosine of each two texts' TF-IDF weights of letter groups within words, counted over `known`."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
    vectoriser.fit(dict.fromkeys([*first, *second] if known is None else known))
    overlap = vectoriser.transform(first).multiply(vectoriser.transform(second))
    return np.asarray(overlap.sum(axis=1), dtype=np.float32).reshape(-1)
