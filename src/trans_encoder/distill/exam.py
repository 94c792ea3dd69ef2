"""The exam that encoders are judged by where there are no labels: questions made once, from held-out pairs alone.

It asks for the scores of the pairs and, where a signal needs them, of the pairs swapped or lightly edited, and of
probes: made pairs whose order is known, because each is a sentence against a more and more damaged copy of itself, or
one that lost a common or a rare word. Words are what white space separates; a text of few words is taken letter by
letter.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trans_encoder.data.pairs import PairSet, Scores
from trans_encoder.data.words import FEWEST_WORDS, joined, words_of
from trans_encoder.errors import DataError

LEVELS = ("itself", "light edit", "heavy edit", "another sentence")
"""What a probe sets against a sentence, most alike first."""

_MOST_PROBES = 64


@dataclass(frozen=True, eq=False)
class Answers:
    """An encoder's scores of an exam, beside what others say of the held-out pairs; None is what nobody asked."""

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
class Exam:
    """What every encoder of a run is asked, and what is known of it without any encoder."""

    pairs: PairSet
    """All questions, part after part."""
    parts: Mapping[str, int]
    """How many questions each part has, by its field of Answers."""
    overlap: Scores

    def answers(self, scores: Scores) -> Answers:
        """Tell the scores of all questions apart."""
        pieces = np.split(scores, np.cumsum(list(self.parts.values()))[:-1])
        parts = dict(zip(self.parts, pieces, strict=True))
        tables = {name: parts[name].reshape(rows, -1) for name, rows in _ROWS.items() if name in parts}
        return Answers(**{**parts, **tables}, overlap=self.overlap)


class Questions(NamedTuple):
    """One part of an exam: the two sides of its pairs."""

    left: Sequence[str]
    right: Sequence[str]


def make_exam(held_out: PairSet, *, seed: int, parts: Collection[str]) -> Exam:
    """Make an exam with these parts (fields of Answers) of held-out pairs; the same seed gives the same questions."""
    random = np.random.default_rng(seed)
    first, second = held_out.sentence1.to_pylist(), held_out.sentence2.to_pylist()
    sentences = held_out.distinct().sentences.to_pylist()
    asked = {
        "plain": Questions(first, second),
        "swapped": Questions(second, first),
        "edited": Questions([light_edit(text, random=random) for text in first], second),
        **_made_pairs(sentences, random=random),
    }
    if len(held_out) < 2 or not all(asked[name].left for name in parts):
        raise DataError(
            f"{len(held_out)} held-out pairs, with {len(sentences)} sentences, are too few or too short to judge "
            "encoders by; give more pairs, a dev set, or selection=last"
        )
    chosen = {name: questions for name, questions in asked.items() if name in {"plain", *parts}}
    left = [text for questions in chosen.values() for text in questions.left]
    right = [text for questions in chosen.values() for text in questions.right]
    sizes = {name: len(questions.left) for name, questions in chosen.items()}
    return Exam(PairSet.from_lists(left, right), sizes, word_overlap(first, second))


def _made_pairs(sentences: Sequence[str], *, random: np.random.Generator) -> dict[str, Questions]:
    """Set sentences against their edits and each other; empty if fewer than two are long enough."""
    long_enough = [text for text in sentences if len(words_of(text)) >= FEWEST_WORDS]
    texts = [long_enough[place] for place in random.permutation(len(long_enough))[:_MOST_PROBES]]
    if len(texts) < 2:
        return {"probes": Questions([], []), "losses": Questions([], [])}
    others = [*texts[1:], texts[0]]
    light = [light_edit(text, random=random) for text in texts]
    heavy = [heavy_edit(text, other=other, random=random) for text, other in zip(texts, others, strict=True)]
    counts = Counter(word for text in long_enough for word in words_of(text))
    uncommon = [lose_word(text, by=lambda word: -counts[word]) for text in texts]
    unrare = [lose_word(text, by=lambda word: counts[word]) for text in texts]
    return {
        "probes": Questions(texts * len(LEVELS), [*texts, *light, *heavy, *others]),
        "losses": Questions(texts * 2, [*uncommon, *unrare]),
    }


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


def word_overlap(first: Sequence[str], second: Sequence[str]) -> Scores:
    """Return the cosine of each two texts' TF-IDF weights of letter groups within words: no language is assumed."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
    vectoriser.fit(dict.fromkeys([*first, *second]))
    product = vectoriser.transform(first).multiply(vectoriser.transform(second))
    return np.asarray(product.sum(axis=1), dtype=np.float32).reshape(-1)
