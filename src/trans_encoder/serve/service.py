"""What the server answers, apart from HTTP: every method takes the items of several requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trans_encoder.answers.audit import Audit
from trans_encoder.answers.found import Duplicates
from trans_encoder.answers.index import Index
from trans_encoder.answers.probability import adjusted
from trans_encoder.answers.retrieval import QUERY
from trans_encoder.answers.searching import MOST_UNUSED
from trans_encoder.data import PairSet
from trans_encoder.encoders import CrossEncoder
from trans_encoder.errors import ConfigurationError, TransEncoderError
from trans_encoder.serve.queueing import Handler

SAME = 0.5
"""From this probability on, a text counts as already here."""


@dataclass(eq=False)
class Service:
    """An index with its models and, if there are some, a cross-encoder and a folder of duplicates."""

    index: Index
    cross: CrossEncoder | None = None
    duplicates: Path | None = None
    audit: Audit | None = field(init=False, default=None)
    found: Duplicates | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Open the duplicates and their audit."""
        if self.duplicates is not None:
            self.found = Duplicates.open(self.duplicates)
            if len(self.found.candidates):
                self.audit = Audit.open(self.duplicates)
        self._rows = {name: row for row, name in enumerate(self.index.embedded.ids)}

    @property
    def handlers(self) -> dict[str, Handler]:
        """The kinds of work, as the queue wants them."""
        kinds = ("embed", "rerank", "search", "same", "compare", "groups", "queue", "answer", "undo")
        return {kind: getattr(self, kind) for kind in kinds}

    def warm_up(self) -> None:
        """Load models and searches, so that the first request does not wait for them."""
        self.search([{"text": "ready", "top": 1, "where": None}])
        self.same([{"text": "ready", "top": 1}])

    def embed(self, requests: Sequence[list[str]]) -> list[list[list[float]]]:
        """Embed the texts of several requests in one go."""
        vectors = self.index.embedder.encode([text for texts in requests for text in texts])
        ends = np.cumsum([len(texts) for texts in requests])[:-1]
        return [part.tolist() for part in np.split(vectors, ends)]

    def same(self, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Tell for texts whether one that means the same is in the index."""
        if not len(self.index):
            return [{"same": False, "probability": 0.0, "hits": []} for _ in requests]
        vectors = self.index.embedder.encode([request["text"] for request in requests])
        depth = max(request["top"] for request in requests) + min(self.index.embedded.unused, MOST_UNUSED)
        positions, scores = self.index.dense.search(vectors, depth)
        answers = []
        for request, found, cosines in zip(requests, positions, scores, strict=True):
            hits = self._hits(request["text"], found, cosines, top=request["top"])
            likely = hits[0]["probability"] if hits else 0.0
            answers.append({"same": likely >= SAME, "probability": likely, "hits": hits})
        return answers

    def _hits(self, text: str, positions: Any, scores: Any, *, top: int) -> list[dict[str, Any]]:
        rows = self.index.embedded
        # A text that no row has any more stays in the index until it is made again.
        there = [place for place, at in enumerate(positions.tolist()) if at >= 0 and rows.first_row[at] >= 0][:top]
        found = [int(rows.first_row[positions[place]]) for place in there]
        texts = [rows.text(row) for row in found]
        likely = adjusted(text, texts, self.index.probability(scores[there]))
        hits = []
        for row, other, score, (probability, differs) in zip(found, texts, scores[there].tolist(), likely, strict=True):
            about = {"id": rows.ids[row], "text": other, "score": round(score, 6)}
            hits.append({**about, "probability": round(probability, 6), "differs": differs})
        return sorted(hits, key=lambda hit: -float(hit["probability"]))

    def search(self, requests: Sequence[dict[str, Any]]) -> list[Any]:
        """Search by meaning and by words."""
        return [self._searched(**request) for request in requests]

    def _searched(self, text: str, top: int, where: str | None) -> Any:
        try:
            return [hit.to_dict() for hit in self.index.search(text, top=top, where=where, cross=self.cross)]
        except TransEncoderError as error:
            return error

    def rerank(self, requests: Sequence[tuple[str, list[str]]]) -> list[list[float]]:
        """Score the texts of each request against its query: by the cross-encoder, else by cosines."""
        return [self._scores([query] * len(texts), texts) for query, texts in requests]

    def _scores(self, first: list[str], second: list[str]) -> list[float]:
        if self.cross is not None:
            return [float(score) for score in self.cross.score(PairSet.from_lists(first, second))]
        return self._relevance(first, second)

    def _cosines(self, first: list[str], second: list[str]) -> list[float]:
        unique = list(dict.fromkeys([*first, *second]))
        vectors = dict(zip(unique, self.index.embedder.encode(unique), strict=True))
        return [float(vectors[a] @ vectors[b]) for a, b in zip(first, second, strict=True)]

    def _relevance(self, queries: list[str], texts: list[str]) -> list[float]:
        """Return cosines of queries, which may have a prompt of their own, and texts."""
        if not self.index.embedder.asks_otherwise:
            return self._cosines(queries, texts)
        asked = list(dict.fromkeys(queries))
        vectors = dict(zip(asked, self.index.embedder.encode(asked, side=QUERY), strict=True))
        found = self.index.embedder.encode(texts)
        return [float(vectors[query] @ vector) for query, vector in zip(queries, found, strict=True)]

    def compare(self, requests: Sequence[tuple[str, str]]) -> list[list[dict[str, Any]]]:
        """Say what each model thinks of two texts."""
        first, second = [request[0] for request in requests], [request[1] for request in requests]
        cosines = self._cosines(first, second)
        likely = [
            adjusted(a, [b], one)[0]
            for a, b, one in zip(first, second, self.index.probability(np.array([cosines])).T, strict=True)
        ]
        name = " + ".join(Path(model).name for model in self.index.manifest.models)
        answers = [
            [{"model": name, "kind": "bi", "score": cosine, "probability": probability, "differs": differs}]
            for cosine, (probability, differs) in zip(cosines, likely, strict=True)
        ]
        if self.cross is not None:
            for answer, score in zip(answers, self._scores(first, second), strict=True):
                about = {"model": Path(self.cross.name).name, "kind": "cross", "probability": None, "differs": None}
                answer.append({**about, "score": score})
        return answers

    def groups(self, requests: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
        """Return some groups of duplicates with their texts."""
        groups = self.found.groups if self.found else []
        answers = []
        for offset, limit in requests:
            part = [
                {
                    "group": group.group,
                    "representative": group.representative,
                    "rows": [{"id": name, "text": self._text(name)} for name in [*group.ids, *group.against]],
                }
                for group in groups[offset : offset + limit]
            ]
            answers.append({"total": len(groups), "groups": part})
        return answers

    def _text(self, name: str) -> str | None:
        row = self._rows.get(name)
        return None if row is None else self.index.embedded.text(row)

    def queue(self, requests: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the next pair of the audit and how far it has come."""
        if self.audit is None:
            return [{"pair": None, "total": 0, "answers": {}, "promise": None} for _ in requests]
        pair = self.audit.next
        shown = None if pair is None else {key: vars(pair)[key] for key in ("number", "id1", "id2", "text1", "text2")}
        promise = self.audit.promise(0.9).to_dict()
        state = {"pair": shown, "total": len(self.audit.pairs), "answers": self.audit.counts, "promise": promise}
        return [state for _ in requests]

    def answer(self, requests: Sequence[tuple[int, Any]]) -> list[Any]:
        """Save answers of the audit and return what comes next."""
        results: list[Any] = []
        for number, answer in requests:
            try:
                self._audit().answer(number, answer)
                results += self.queue([None])
            except TransEncoderError as error:
                results.append(error)
        return results

    def undo(self, requests: Sequence[Any]) -> list[dict[str, Any]]:
        """Take back as many answers as there are requests."""
        return [self.queue([self._audit().undo()])[0] for _ in requests]

    def _audit(self) -> Audit:
        if self.audit is None:
            raise ConfigurationError("there is no audit; start the server with --duplicates FOLDER")
        return self.audit
