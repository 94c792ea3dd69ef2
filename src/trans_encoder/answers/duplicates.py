"""Which rows mean the same: candidates, scores, a decision, groups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trans_encoder.answers.deciding import WORTH_KEEPING, Scored, decide, score_candidates
from trans_encoder.answers.found import DuplicatePair, Duplicates, Group
from trans_encoder.answers.grouping import Grouper, representative
from trans_encoder.answers.index import Index, is_index
from trans_encoder.answers.probability import Probability, estimate_probability
from trans_encoder.answers.retrieval import (
    Candidates,
    DenseIndex,
    EachPrompts,
    Embedded,
    Embedder,
    LexicalIndex,
    find_candidates,
    joined,
    load_embedder,
)
from trans_encoder.data import ID, Corpus
from trans_encoder.distill.run import Result
from trans_encoder.encoders import CrossEncoder, load_encoder
from trans_encoder.errors import ConfigurationError

_FLOOR = 0.3
"""Candidates this part of the way from unrelated to the same are looked at."""

Source = Corpus | Index | str | Path | Sequence[str]


def find_duplicates(
    source: Source,
    *,
    models: Sequence[str] | str | None = None,
    prompts: EachPrompts = None,
    cross: str | CrossEncoder | Sequence[CrossEncoder] | None = None,
    run: Result | str | Path | None = None,
    against: Source | None = None,
    precision: float | None = None,
    threshold: float | None = None,
    flips: bool = False,
    seed: int = 0,
    trust_remote_code: bool = False,
) -> Duplicates:
    """Find the rows of a file, corpus, index or list of texts that mean the same.

    The models are those of the index (also of `against`) or of a finished `run`, or `models` (several are a team) and,
    to look twice, `cross`. All rows are embedded with one prompt, that of second texts (see `load_embedder`). Pairs are
    accepted up to an expected `precision`, from a `threshold` of the score on, or else where the expected F1 is best.
    Texts that differ by a negation, number, name or exchanged words alone are kept apart, unless `flips` lets them
    count as the same. With `against`, rows are compared with those of another source only.
    """
    names = [models] if isinstance(models, str) else list(models or [])
    if run is not None:
        if names or cross is not None or prompts is not None:
            raise ConfigurationError("give either a run or models, not both; a run's models keep their prompts")
        names, cross = models_of(run if isinstance(run, Result) else Result.open(run))
    source = _opened(source, trust_remote_code=trust_remote_code)
    against = None if against is None else _opened(against, trust_remote_code=trust_remote_code)
    made = against if not names and against is not None and not isinstance(source, Index) else source
    embedder = _embedder(made, names, prompts, trust_remote_code=trust_remote_code)
    if isinstance(cross, str):
        cross = load_encoder(cross, kind="cross", trust_remote_code=trust_remote_code)
    crosses = [cross] if isinstance(cross, CrossEncoder) else list(cross or [])
    rows = _embed(source, embedder)
    other = None if against is None else _embed(against, embedder)
    deciding = {"precision": precision, "threshold": threshold}
    return duplicates_of(rows, embedder, crosses=crosses, against=other, flips=flips, seed=seed, **deciding)


def duplicates_of(
    rows: Embedded,
    embedder: Embedder,
    *,
    crosses: Sequence[CrossEncoder] = (),
    against: Embedded | None = None,
    precision: float | None = None,
    threshold: float | None = None,
    flips: bool = False,
    seed: int = 0,
) -> Duplicates:
    """Find the rows that mean the same among rows that are embedded."""
    everything = rows if against is None else joined(rows, against)
    dense, lexical = DenseIndex(everything.vectors, seed=seed), LexicalIndex(everything.texts)
    probability = estimate_probability(everything, embedder, dense, seed=seed)
    floor = probability.scale.score(_FLOOR)
    candidates = find_candidates(everything, dense=dense, lexical=lexical, floor=floor)
    candidates = _between(candidates, everything, own=len(rows)) if against is not None else candidates
    scored = score_candidates(everything, candidates, probability, crosses=crosses, flips=flips, seed=seed)
    same, least = decide(scored, precision=precision, threshold=threshold)
    answer = _Answer(everything, len(rows), scored, same, probability)
    pairs, groups = answer.pairs(), answer.groups(decision=least if threshold is None else 0.5)
    by = {"precision": precision, "threshold": threshold, "least_probability": None if threshold is not None else least}
    summary = {
        "models": embedder.names,
        "cross": [encoder.name for encoder in crosses],
        "decision": by,
        "candidates": len(candidates),
        "pairs": len(pairs),
        "groups": len(groups),
        "kept_apart": int(scored.apart.sum()),
        "expected_precision": answer.expected_precision(),
    }
    return Duplicates(pairs, groups, probability, len(everything), summary, answer.table())


@dataclass(frozen=True, eq=False)
class _Answer:
    """Decided pairs of texts, turned into pairs and groups of rows."""

    rows: Embedded
    own: int
    """Rows before this one are the user's, the others those of the file compared with."""
    scored: Scored
    same: np.ndarray[Any, np.dtype[np.bool_]]
    probability: Probability

    @property
    def _is_within(self) -> bool:
        return self.own == len(self.rows)

    def pairs(self) -> list[DuplicatePair]:
        """Return the pairs of rows; a row with the same text as an earlier one is paired with the first of these."""
        found = [DuplicatePair(self.rows.ids[a], self.rows.ids[b], 1.0, 1.0) for a, b in self._equal()]
        chosen = np.flatnonzero(self.same)
        order = chosen[np.argsort(-self.scored.probabilities[chosen], kind="stable")]
        for place in order:
            a, b = self._rows_of(int(self.scored.candidates.left[place]), int(self.scored.candidates.right[place]))
            score, probability = self.scored.scores[place], self.scored.probabilities[place]
            values = _short(score), _short(probability), self.scored.differences[place]
            found.append(DuplicatePair(self.rows.ids[a], self.rows.ids[b], *values))
        return found

    def groups(self, *, decision: float) -> list[Group]:
        """Return the groups of rows, largest first."""
        candidates = self.scored.candidates.take(self.same)
        grouper = Grouper(self.rows, self.probability, decision=decision)
        apart = self.scored.candidates.take(self.scored.apart)
        grouper.keep_apart(apart.left, apart.right)
        merged = grouper.merge(candidates.left, candidates.right, self.scored.probabilities[self.same])
        members = self._members()
        alone = set(self._texts_of_several_rows()) - {text for group in merged for text in group}
        groups = [*merged, *([text] for text in sorted(alone))]
        ordered = sorted(groups, key=lambda texts: -sum(len(members[text]) for text in texts))
        return [self._group(number, texts, members) for number, texts in enumerate(ordered, start=1)]

    def table(self) -> pa.Table:
        """Return all candidates worth a look, the likely first."""
        scored = self.scored
        kept = np.flatnonzero((scored.probabilities >= WORTH_KEEPING) | self.same | scored.apart)
        order = kept[np.argsort(-scored.probabilities[kept], kind="stable")]
        places = [
            self._rows_of(*pair)
            for pair in zip(
                scored.candidates.left[order].tolist(), scored.candidates.right[order].tolist(), strict=True
            )
        ]
        first, second = (np.array([pair[side] for pair in places], dtype=np.int64) for side in (0, 1))
        ids = self.rows.rows[ID]
        return pa.table(
            {
                "id1": ids.take(pa.array(first)),
                "id2": ids.take(pa.array(second)),
                "text1": self.rows.texts.take(pa.array(self.rows.place[first])),
                "text2": self.rows.texts.take(pa.array(self.rows.place[second])),
                "score": scored.scores[order],
                "probability": scored.probabilities[order],
                "low": scored.low[order],
                "high": scored.high[order],
                "same": self.same[order],
                "differs": pa.array(scored.differences[order].tolist(), pa.string()),
            }
        )

    def expected_precision(self) -> float | None:
        """Return the mean probability of the accepted pairs."""
        return float(self.scored.probabilities[self.same].mean()) if self.same.any() else None

    def _members(self) -> dict[int, list[int]]:
        """Return the rows of each text that is in question."""
        used = set(self._texts_of_several_rows())
        used |= {
            int(p) for side in (self.scored.candidates.left, self.scored.candidates.right) for p in side[self.same]
        }
        members: dict[int, list[int]] = {text: [] for text in used}
        for row, text in enumerate(self.rows.place.tolist()):
            if text in members:
                members[text].append(row)
        return members

    def _texts_of_several_rows(self) -> list[int]:
        if self._is_within:
            return [int(text) for text in np.flatnonzero(np.bincount(self.rows.place) > 1)]
        ours, theirs = np.unique(self.rows.place[: self.own]), np.unique(self.rows.place[self.own :])
        return [int(text) for text in np.intersect1d(ours, theirs)]

    def _equal(self) -> Iterator[tuple[int, int]]:
        """Yield rows that have the very same text: each with the first of them."""
        several = set(self._texts_of_several_rows())
        first: dict[int, int] = {}
        for row, text in enumerate(self.rows.place.tolist()):
            if text in several:
                if text in first and (self._is_within or row >= self.own):
                    yield first[text], row
                first.setdefault(text, row)

    def _rows_of(self, left: int, right: int) -> tuple[int, int]:
        """Return the first rows of two texts, the user's own first."""
        if self._is_within:
            return int(self.rows.first_row[left]), int(self.rows.first_row[right])
        ours = left if self.rows.first_row[left] < self.own and self._theirs[right] >= 0 else right
        theirs = right if ours == left else left
        return int(self.rows.first_row[ours]), int(self._theirs[theirs])

    @cached_property
    def _theirs(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The first row of each text among those compared with; -1 where there is none."""
        return _first_rows(self.rows.place[self.own :], len(self.rows.texts), offset=self.own)

    def _group(self, number: int, texts: Sequence[int], members: dict[int, list[int]]) -> Group:
        rows = sorted(row for text in texts for row in members[text])
        ours, theirs = [row for row in rows if row < self.own], [row for row in rows if row >= self.own]
        own_texts = sorted({int(self.rows.place[row]) for row in ours})
        best = representative(self.rows, own_texts)
        chosen = next(row for row in ours if self.rows.place[row] == best)
        ids = self.rows.ids
        return Group(
            group=number,
            ids=[ids[row] for row in ours],
            representative=ids[chosen],
            texts=[self.rows.text(row) for row in ours],
            against=[ids[row] for row in theirs],
            against_texts=[self.rows.text(row) for row in theirs],
        )


def _between(candidates: Candidates, rows: Embedded, *, own: int) -> Candidates:
    """Keep the candidates that have one text on each side."""
    ours = _first_rows(rows.place[:own], len(rows.texts), offset=0) >= 0
    theirs = _first_rows(rows.place[own:], len(rows.texts), offset=own) >= 0
    left, right = candidates.left, candidates.right
    return candidates.take((ours[left] & theirs[right]) | (ours[right] & theirs[left]))


def _first_rows(place: np.ndarray[Any, Any], texts: int, *, offset: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    first = np.full(texts, -1, dtype=np.int64)
    first[place[::-1]] = np.arange(len(place))[::-1] + offset
    return first


def models_of(result: Result) -> tuple[list[str], list[CrossEncoder]]:
    """Return the names of a run's bi-encoders, and its cross-encoders."""
    return [encoder.name for encoder in result.bis.values()], list(result.crosses.values())


def _embedder(source: Source, names: Sequence[str], prompts: EachPrompts, *, trust_remote_code: bool) -> Embedder:
    if isinstance(source, Index):
        if names:
            raise ConfigurationError(
                f"{source.path} is an index and keeps to its own models ({', '.join(source.manifest.models)}); "
                "leave out the models, or give the file itself"
            )
        if prompts is None:
            return source.embedder
        return Index.open(source.path, prompts=prompts, trust_remote_code=trust_remote_code).embedder
    if not names:
        raise ConfigurationError(
            "no model was given to compare texts with; give a bi-encoder's folder or hub name with --model, "
            "such as sentence-transformers/all-MiniLM-L6-v2, a finished run with --run, or an index"
        )
    return load_embedder(names, prompts=prompts, trust_remote_code=trust_remote_code)


def _opened(source: Source, *, trust_remote_code: bool) -> Source:
    """Open a place that is an index; leave any other source as it is."""
    if isinstance(source, str | Path) and is_index(source):
        return Index.open(source, trust_remote_code=trust_remote_code)
    return source


def _embed(source: Source, embedder: Embedder) -> Embedded:
    if isinstance(source, Index):
        if not source.manifest.is_of(embedder):
            raise ConfigurationError(
                f"{source.path} was embedded with other models or prompts than the texts compared with it"
            )
        return source.embedded.compacted()
    if isinstance(source, str | Path):
        return Embedded.of(Corpus.read(source), embedder)
    if isinstance(source, Corpus):
        return Embedded.of(source, embedder)
    return Embedded.of(Corpus.from_texts(source), embedder)


def _short(value: Any) -> float:
    return round(float(value), 6)
