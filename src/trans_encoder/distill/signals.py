"""Signals of an encoder's quality that need no labels: each a number (x100) made from its answers to an exam.

The exam is made once, from held-out pairs alone. It asks for the scores of the pairs and of probes: made pairs whose
order is known, because each is a sentence against a more and more damaged copy of itself, or one that lost a common or
a rare word. A thorough exam also asks for the pairs swapped, and with a light edit. Words are what white space
separates; a text of few words is taken letter by letter.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.labels import Scores
from trans_encoder.errors import DataError
from trans_encoder.evaluation.metrics import spearman

LEVELS = ("itself", "light edit", "heavy edit", "another sentence")
"""What a probe sets against a sentence, most alike first."""

_FEWEST_WORDS = 4  # of fewer, a light and a heavy edit would leave the same
_MOST_PROBES = 64
_BINS = 20


@dataclass(frozen=True, eq=False)
class Exam:
    """What every encoder of a run is asked, and what is known of it without any encoder."""

    pairs: PairSet
    """The questions, in the order of the fields of Answers."""
    held_out: PairSet
    sentences: int
    """How many sentences have probes."""
    overlap: Scores
    """Of each held-out pair: how much of their wording the two sentences share."""

    def answers(self, scores: Scores) -> "Answers":
        """Tell the scores of all questions apart."""
        made, pairs = np.split(scores, [(len(LEVELS) + 2) * self.sentences])
        made = made.reshape(-1, self.sentences)
        plain, *more = pairs.reshape(-1, len(self.held_out))
        swapped, edited = more or (None, None)
        return Answers(made[: len(LEVELS)], made[len(LEVELS) :], plain, swapped, edited, overlap=self.overlap)


@dataclass(frozen=True, eq=False)
class Answers:
    """An encoder's scores of an exam, beside what others say of the held-out pairs."""

    probes: Scores
    """Of a sentence with each of LEVELS: one row for each level, one column for each sentence."""
    losses: Scores
    """Of a sentence with itself but for its commonest word, and but for its rarest: two rows."""
    plain: Scores
    """Of the held-out pairs."""
    swapped: Scores | None
    """Of the held-out pairs in the other order; asked in a thorough exam only."""
    edited: Scores | None
    """Of the held-out pairs with a lightly edited first sentence; asked in a thorough exam only."""
    overlap: Scores
    """How much of their wording the sentences of each held-out pair share."""
    start: Scores | None = None
    """The mean of the members' first bi-encoders."""
    teacher: Scores | None = None
    """The labels of this cycle: the mean of the teachers."""
    partner: Scores | None = None
    """The member's own teacher alone: its bi-encoder for a cross-encoder, its cross-encoder for a bi-encoder."""
    others: Scores | None = None
    """The mean of the other members' teachers; None in a team of one."""


def make_exam(held_out: PairSet, *, seed: int, thorough: bool = False) -> Exam:
    """Make the exam of held-out pairs; the same pairs and seed give the same exam."""
    random = np.random.default_rng(seed)
    long_enough = [text for text in held_out.distinct().sentences.to_pylist() if len(_words(text)) >= _FEWEST_WORDS]
    if len(held_out) < 2 or len(long_enough) < 2:
        raise DataError(
            f"{len(held_out)} held-out pairs, with {len(long_enough)} texts that are long enough to edit, are too few "
            "to judge encoders by; give more pairs, a dev set, or selection=last"
        )
    texts = [long_enough[place] for place in random.permutation(len(long_enough))[:_MOST_PROBES]]
    others = [*texts[1:], texts[0]]
    light = [light_edit(text, random=random) for text in texts]
    heavy = [heavy_edit(text, other=other, random=random) for text, other in zip(texts, others, strict=True)]
    counts = Counter(word for text in long_enough for word in _words(text))
    uncommon = [lose_word(text, by=lambda word: -counts[word]) for text in texts]
    unrare = [lose_word(text, by=lambda word: counts[word]) for text in texts]
    first, second = held_out.sentence1.to_pylist(), held_out.sentence2.to_pylist()
    left = [*texts * (len(LEVELS) + 2), *first]
    right = [*texts, *light, *heavy, *others, *uncommon, *unrare, *second]
    if thorough:
        left += [*second, *(light_edit(text, random=random) for text in first)]
        right += [*first, *second]
    return Exam(PairSet.from_lists(left, right), held_out, len(texts), word_overlap(first, second))


def light_edit(text: str, *, random: np.random.Generator) -> str:
    """Drop one word or swap two neighbours; a text of one word stays."""
    words = _words(text)
    if len(words) < 2:
        return text
    place = int(random.integers(len(words) - 1))
    if random.random() < 0.5:
        del words[place]
    else:
        words[place], words[place + 1] = words[place + 1], words[place]
    return _joined(words, like=text)


def heavy_edit(text: str, *, other: str, random: np.random.Generator) -> str:
    """Drop half of the words, or put words of another text in their place."""
    words, foreign = _words(text), _words(other)
    gone = set(random.permutation(len(words))[: (len(words) + 1) // 2].tolist())
    if random.random() < 0.5:
        return _joined([word for place, word in enumerate(words) if place not in gone], like=text)
    return _joined(
        [foreign[int(random.integers(len(foreign)))] if place in gone else word for place, word in enumerate(words)],
        like=text,
    )


def lose_word(text: str, *, by: Callable[[str], int]) -> str:
    """Drop the word for which a measure is smallest, the first of equals."""
    words = _words(text)
    del words[min(range(len(words)), key=lambda place: by(words[place]))]
    return _joined(words, like=text)


def word_overlap(first: Sequence[str], second: Sequence[str]) -> Scores:
    """Return the cosine of each two texts' TF-IDF weights of letter groups within words: no language is assumed."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
    vectoriser.fit(dict.fromkeys([*first, *second]))
    product = vectoriser.transform(first).multiply(vectoriser.transform(second))
    return np.asarray(product.sum(axis=1), dtype=np.float32).reshape(-1)


def teacher_agreement(answers: Answers) -> float | None:
    """Rank agreement with the teachers on pairs not trained on: what was learnt rather than learnt by heart."""
    return _agreement(answers.plain, answers.teacher)


def partner_agreement(answers: Answers) -> float | None:
    """Rank agreement of a member's bi- and cross-encoder: they err differently, so they meet near the truth."""
    return _agreement(answers.plain, answers.partner)


def others_agreement(answers: Answers) -> float | None:
    """Rank agreement with the other members, for the same reason; None in a team of one."""
    return _agreement(answers.plain, answers.others)


def start_agreement(answers: Answers) -> float | None:
    """Rank agreement with the start: an encoder that forgot what the start knew has drifted or collapsed."""
    return _agreement(answers.plain, answers.start)


def overlap_agreement(answers: Answers) -> float | None:
    """Rank agreement with the shared wording: a poor judge, but one whose errors no training shares."""
    return _agreement(answers.plain, answers.overlap)


def agreement_beyond_overlap(answers: Answers) -> float | None:
    """Rank agreement with the start on what shared wording does not explain: whether its finer knowledge is kept."""
    if answers.start is None:
        return None
    with_start, own, its = (
        (_agreement(one, other) or 0.0) / 100
        for one, other in (
            (answers.plain, answers.start),
            (answers.plain, answers.overlap),
            (answers.start, answers.overlap),
        )
    )
    unexplained = np.sqrt((1 - own**2) * (1 - its**2))
    return 100 * float((with_start - own * its) / unexplained) if unexplained > 0 else 0.0


def swap_agreement(answers: Answers) -> float | None:
    """Rank agreement with itself under swapped order: likeness has no order (a bi-encoder always has 100)."""
    return _agreement(answers.plain, answers.swapped)


def edit_agreement(answers: Answers) -> float | None:
    """Rank agreement with itself under a light edit: a score that such an edit upsets rests on noise."""
    return _agreement(answers.plain, answers.edited)


def probe_order(answers: Answers) -> float:
    """Share of a sentence's probes in the right order: more damage must mean a lower score; ties count half."""
    probes = answers.probes
    upper, lower = np.triu_indices(len(probes), k=1)
    return 100 * float(((probes[upper] > probes[lower]) + 0.5 * (probes[upper] == probes[lower])).mean())


def probe_scale(answers: Answers) -> float | None:
    """Rank agreement of all probes with their levels: a score must mean the same for every sentence."""
    rows, columns = answers.probes.shape
    return _agreement(answers.probes.reshape(-1), -np.repeat(np.arange(rows), columns))


def content_weight(answers: Answers) -> float:
    """Share of sentences that mind losing their rarest word more than their commonest: there the meaning is."""
    common, rare = answers.losses
    return 100 * float(((common > rare) + 0.5 * (common == rare)).mean())


def contrast(answers: Answers) -> float:
    """How far unrelated sentences are from a perfect score: near 0 all embeddings point one way (anisotropy)."""
    return 100 * float(1 - answers.probes[-1].mean())


def spread(answers: Answers) -> float:
    """Entropy of the scores over [0, 1], 100 if all are used alike: an encoder that says little knows little."""
    counts, _ = np.histogram(answers.plain.clip(0, 1), bins=_BINS, range=(0, 1))
    shares = counts[counts > 0] / counts.sum()
    return 100 * float(-(shares * np.log(shares)).sum() / np.log(_BINS))


SIGNALS: Mapping[str, Callable[[Answers], float | None]] = {
    "teacher": teacher_agreement,
    "partner": partner_agreement,
    "others": others_agreement,
    "start": start_agreement,
    "overlap": overlap_agreement,
    "start beyond overlap": agreement_beyond_overlap,
    "swap": swap_agreement,
    "edit": edit_agreement,
    "probe order": probe_order,
    "probe scale": probe_scale,
    "content": content_weight,
    "contrast": contrast,
    "spread": spread,
}
"""Every signal by its name; a signal that lacks what it compares with is None."""


def measure_signals(answers: Answers) -> dict[str, float | None]:
    """Return every signal of an encoder's answers."""
    return {name: signal(answers) for name, signal in SIGNALS.items()}


def _agreement(scores: npt.NDArray[Any], reference: npt.NDArray[Any] | None) -> float | None:
    """Spearman's rho x100; 0 if either says the same of every pair."""
    if reference is None:
        return None
    return spearman(scores, reference) if np.ptp(scores) > 0 and np.ptp(reference) > 0 else 0.0


def _words(text: str) -> list[str]:
    words = text.split()
    return words if len(words) >= _FEWEST_WORDS else list(text.strip())


def _joined(words: list[str], *, like: str) -> str:
    return (" " if len(like.split()) >= _FEWEST_WORDS else "").join(words)
