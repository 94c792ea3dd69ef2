"""The demo's gold and how encoders are measured on it; for reporting only, see GRADING.md."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from trans_encoder.data import PairSet
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.evaluation.metrics import spearman

Matrix = NDArray[np.float32]

RETRIEVED = 20
"""Number of sentences, the bi-encoder's best, that the cross-encoder re-ranks."""


@dataclass(frozen=True)
class Question:
    """A question and the topics that answer it."""

    text: str
    topics: tuple[str, ...]


@dataclass(frozen=True)
class Figures:
    """What one method reaches on the gold, everything x100."""

    spearman: float
    """Rank correlation with the grades of the pairs."""
    recall_at_1: float
    """Questions whose first topic answers them."""
    mrr: float
    """Mean over the questions of 1 / rank of the first topic that answers."""


@dataclass(frozen=True)
class Documents:
    """The topics as documents: each distinct sentence once, with the shortest topic that has it."""

    topics: tuple[str, ...]
    sentences: tuple[str, ...]
    owners: NDArray[np.int64]
    """For each sentence, the place of its topic in `topics`."""
    same: Mapping[str, str]
    """Each topic's name, and the name it is known by here: topics with one text are one document."""

    @classmethod
    def of(cls, documents: Mapping[str, Sequence[str]]) -> Self:
        """Build the documents from the sentences of each topic."""
        known: dict[tuple[str, ...], str] = {}
        same = {topic: known.setdefault(tuple(documents[topic]), topic) for topic in sorted(documents)}
        shortest_first = sorted(set(same.values()), key=lambda topic: (sum(map(len, documents[topic])), topic))
        owner: dict[str, int] = {}
        for place, topic in enumerate(shortest_first):
            for sentence in documents[topic]:
                owner.setdefault(sentence, place)
        return cls(tuple(shortest_first), tuple(owner), np.fromiter(owner.values(), np.int64), same)

    def ranks(self, questions: Sequence[Question], similarity: Matrix) -> NDArray[np.int64]:
        """Return the rank of the first topic that answers each question, given its similarity to every sentence.

        A topic is as good an answer as the best of its sentences.
        """
        scores = np.full((len(questions), len(self.topics)), -np.inf, dtype=np.float32)
        for sentence, owner in enumerate(self.owners):
            np.maximum(scores[:, owner], similarity[:, sentence], out=scores[:, owner])
        place = {topic: number for number, topic in enumerate(self.topics)}
        answers = [[place[self.same[topic]] for topic in question.topics] for question in questions]
        best = np.array([row[answer].max() for row, answer in zip(scores, answers, strict=True)])
        return np.asarray(1 + (scores > best[:, None]).sum(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class Gold:
    """The graded pairs, the questions and the documents they are asked of."""

    pairs: PairSet
    grades: NDArray[np.float64]
    questions: tuple[Question, ...]
    documents: Documents

    @classmethod
    def load(cls, documents: Mapping[str, Sequence[str]]) -> Self:
        """Read the files of the package; questions about topics that this Python does not have are left out."""
        with (files(__package__) / "gold_pairs.tsv").open(encoding="utf-8") as file:
            rows = [(row["sentence1"], row["sentence2"], float(row["score"])) for row in _rows(file)]
        with (files(__package__) / "gold_questions.tsv").open(encoding="utf-8") as file:
            asked = [Question(row["question"], tuple(row["topics"].split())) for row in _rows(file)]
        first, second, grades = map(list, zip(*rows, strict=True))
        questions = tuple(question for question in asked if set(question.topics) <= set(documents))
        return cls(PairSet.from_lists(first, second), np.array(grades), questions, Documents.of(documents))

    @property
    def asked(self) -> list[str]:
        """The texts of the questions."""
        return [question.text for question in self.questions]

    def tfidf(self) -> Figures:
        """Measure TF-IDF, the baseline that needs no model; its document frequencies are those of the documents."""
        vectors = TfidfVectorizer(sublinear_tf=True, token_pattern=r"[^\s\w]+|\w+").fit(self.documents.sentences)
        left, right = (vectors.transform(column.to_pylist()) for column in (self.pairs.sentence1, self.pairs.sentence2))
        similarity = vectors.transform(self.asked) @ vectors.transform(self.documents.sentences).T
        return self._figures(left.multiply(right).sum(axis=1).A1, similarity.toarray())

    def bi(self, encoder: BiEncoder) -> Figures:
        """Measure a bi-encoder."""
        return self._figures(encoder.score(self.pairs), self._cosines(encoder))

    def cross(self, encoder: CrossEncoder, *, retriever: BiEncoder) -> Figures:
        """Measure a cross-encoder; it puts in order the sentences that a bi-encoder found for each question."""
        similarity = self._cosines(retriever)
        found = np.argsort(-similarity, axis=1, kind="stable")[:, :RETRIEVED]
        candidates = PairSet.from_lists(
            [question for question in self.asked for _ in range(found.shape[1])],
            [self.documents.sentences[sentence] for sentence in found.ravel()],
        )
        # Cosines end at 1, so that what was found stays before what was not.
        np.put_along_axis(similarity, found, 2 + encoder.score(candidates).reshape(found.shape), axis=1)
        return self._figures(encoder.score(self.pairs), similarity)

    def _cosines(self, encoder: BiEncoder) -> Matrix:
        questions, sentences = (normalize(encoder.encode(texts)) for texts in (self.asked, self.documents.sentences))
        return np.asarray(questions @ sentences.T, dtype=np.float32)

    def _figures(self, scores: NDArray[Any], similarity: Matrix) -> Figures:
        ranks = self.documents.ranks(self.questions, similarity)
        return Figures(
            spearman=spearman(scores, self.grades),
            recall_at_1=100 * float((ranks == 1).mean()),
            mrr=100 * float((1 / ranks).mean()),
        )


def _rows(file: Iterable[str]) -> Iterator[dict[str, str]]:
    return csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
