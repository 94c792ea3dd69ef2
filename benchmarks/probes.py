"""Probes for the study of label-free signals (selection.py): made once, from held-out pairs alone.

Encoders score the pairs as they are, swapped and lightly edited, and made pairs whose order is known: a sentence
against a more and more damaged copy of itself, or against one that lost a common or a rare word.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trans_encoder.data.pairs import PairSet, Scores
from trans_encoder.data.wording import shared_wording
from trans_encoder.data.words import FEWEST_WORDS, joined, words_of
from trans_encoder.distill.judges import light_edit
from trans_encoder.errors import DataError

LEVELS = ("itself", "light edit", "heavy edit", "another sentence")
"""What a probe sets against a sentence, most alike first."""

_MOST_PROBES = 64


@dataclass(frozen=True, eq=False)
class ProbeScores:
    """An encoder's scores of the probes, and other scorers' of the held-out pairs; None where there are none."""

    plain: Scores
    """Of the held-out pairs."""
    overlap: Scores
    """How much of their wording the sentences of each held-out pair share."""
    swapped: Scores | None = None
    """Of the held-out pairs in the other order."""
    edited: Scores | None = None
    """Of the held-out pairs with a lightly edited first sentence."""
    probes: Scores | None = None
    """Of sentences with each of LEVELS: one row for each level, one column for each sentence."""
    losses: Scores | None = None
    """Of sentences with themselves but for their commonest word, and but for their rarest: two rows."""
    start: Scores | None = None
    """The mean of the members' first bi-encoders on the held-out pairs."""
    teacher: Scores | None = None
    """The labels of this cycle: the mean of the teachers."""
    partner: Scores | None = None
    """The member's own teacher alone: its bi-encoder for a cross-encoder, its cross-encoder for a bi-encoder."""
    others: Scores | None = None
    """The mean of the other members' teachers; None in a team of one."""


_ROWS = {"probes": len(LEVELS), "losses": 2}


@dataclass(frozen=True, eq=False)
class ProbeSet:
    """What every encoder scores."""

    pairs: PairSet
    """All parts, one after the other."""
    parts: Mapping[str, int]
    """How many pairs each part has, by its field of ProbeScores."""
    overlap: Scores

    def split(self, scores: Scores) -> ProbeScores:
        """Return the scores of each part."""
        pieces = np.split(scores, np.cumsum(list(self.parts.values()))[:-1])
        parts = dict(zip(self.parts, pieces, strict=True))
        tables = {name: parts[name].reshape(rows, -1) for name, rows in _ROWS.items() if name in parts}
        return ProbeScores(**{**parts, **tables}, overlap=self.overlap)


class Part(NamedTuple):
    """One part: the two sides of its pairs."""

    left: Sequence[str]
    right: Sequence[str]


def make_probe_set(held_out: PairSet, *, seed: int, parts: Collection[str]) -> ProbeSet:
    """Make these parts (fields of ProbeScores) of held-out pairs; the same seed gives the same probes."""
    random = np.random.default_rng(seed)
    first, second = held_out.sentence1.to_pylist(), held_out.sentence2.to_pylist()
    sentences = held_out.distinct().sentences.to_pylist()
    asked = {
        "plain": Part(first, second),
        "swapped": Part(second, first),
        "edited": Part([light_edit(text, random=random) for text in first], second),
        **_made_pairs(sentences, random=random),
    }
    if len(held_out) < 2 or not all(asked[name].left for name in parts):
        raise DataError(
            f"{len(held_out)} held-out pairs, with {len(sentences)} sentences, are too few or too short to judge "
            "encoders by; give more pairs, a dev set, or selection=last"
        )
    chosen = {name: each for name, each in asked.items() if name in {"plain", *parts}}
    left = [text for each in chosen.values() for text in each.left]
    right = [text for each in chosen.values() for text in each.right]
    sizes = {name: len(each.left) for name, each in chosen.items()}
    return ProbeSet(PairSet.from_lists(left, right), sizes, shared_wording(first, second))


def _made_pairs(sentences: Sequence[str], *, random: np.random.Generator) -> dict[str, Part]:
    """Set sentences against their edits and each other; empty if fewer than two are long enough."""
    long_enough = [text for text in sentences if len(words_of(text)) >= FEWEST_WORDS]
    texts = [long_enough[place] for place in random.permutation(len(long_enough))[:_MOST_PROBES]]
    if len(texts) < 2:
        return {"probes": Part([], []), "losses": Part([], [])}
    others = [*texts[1:], texts[0]]
    light = [light_edit(text, random=random) for text in texts]
    heavy = [heavy_edit(text, other=other, random=random) for text, other in zip(texts, others, strict=True)]
    counts = Counter(word for text in long_enough for word in words_of(text))
    uncommon = [lose_word(text, by=lambda word: -counts[word]) for text in texts]
    unrare = [lose_word(text, by=lambda word: counts[word]) for text in texts]
    return {
        "probes": Part(texts * len(LEVELS), [*texts, *light, *heavy, *others]),
        "losses": Part(texts * 2, [*uncommon, *unrare]),
    }


def heavy_edit(text: str, *, other: str, random: np.random.Generator) -> str:
    """Drop half of the words, or put words of another text in their place."""
    words, foreign = words_of(text), words_of(other)
    gone = set(random.permutation(len(words))[: (len(words) + 1) // 2].tolist())
    if random.random() < 0.5:
        return joined([word for place, word in enumerate(words) if place not in gone], like=text)
    return joined(
        [foreign[int(random.integers(len(foreign)))] if place in gone else word for place, word in enumerate(words)],
        like=text,
    )


def lose_word(text: str, *, by: Callable[[str], int]) -> str:
    """Drop the word for which a measure is smallest, the first of equals."""
    words = words_of(text)
    del words[min(range(len(words)), key=lambda place: by(words[place]))]
    return joined(words, like=text)
