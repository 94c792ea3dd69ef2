"""An audit: people look at some pairs of a duplicates folder, and their answers become a promise and a dev set."""

import json
import os
import time
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from trans_encoder.answers.found import CANDIDATES
from trans_encoder.answers.promises import Promise, draw_pairs, keep_promise
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.files import atomic_file, read_json, sha256, write_json

PLAN, ANSWERS, DEV, PROMISED = "audit.json", "audit.jsonl", "audit-dev.jsonl", "promised.jsonl"
Answer = Literal["same", "not the same", "unsure"]
ANSWER_NAMES: tuple[Answer, ...] = get_args(Answer)
_REASON = 300  # a damaged file may put any amount of text into an error
_BEYOND = 0.5
"""Pairs beyond the decision that are sampled too, as a share of those before it."""


@dataclass(frozen=True)
class AuditPair:
    """A pair to look at."""

    number: int
    band: int
    """0 holds the likeliest pairs."""
    id1: str
    id2: str
    text1: str
    text2: str
    probability: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


@dataclass(eq=False)
class Audit:
    """The audit of a duplicates folder; every answer is on the disk before `answer` returns."""

    folder: Path
    pairs: list[AuditPair]
    """In the order in which they are asked: in every round one pair of each band."""
    bands: int
    band_size: int
    """Candidates in each band, checked or not."""
    answers: dict[int, Answer]
    """By the number of the pair, oldest first."""

    @classmethod
    def open(cls, folder: str | Path, *, pairs: int = 100, seed: int = 0) -> Self:
        """Begin the audit of a duplicates folder, or continue the one that is there with the pairs that it has."""
        place = Path(folder)
        if not (place / CANDIDATES).is_file():
            raise DataError(
                f"{place} does not hold what `duplicates` writes; make it first: "
                f"trans-encoder duplicates INDEX --out {place}"
            )
        checksum = sha256(place / CANDIDATES)
        if not (place / PLAN).exists():
            write_json(place / PLAN, {"candidates": checksum, **_plan(place, pairs=pairs, seed=seed)})
        try:
            plan = read_json(place / PLAN)
            if plan["candidates"] != checksum:
                raise DataError(
                    f"{place / CANDIDATES} has changed since its audit began, so the answers no longer tell about it; "
                    f"move {PLAN} and {ANSWERS} away to begin again ({DEV} stays valid as a dev set)"
                )
            chosen = [AuditPair(**one) for one in plan["pairs"]]
            audit = cls(place, chosen, plan["bands"], plan["band_size"], {})
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error)[:_REASON]
            raise DataError(f"{place / PLAN} cannot be read ({reason}); move it away to begin again") from error
        audit._read_answers()
        return audit

    @property
    def next(self) -> AuditPair | None:
        """The next pair without an answer."""
        return next((pair for pair in self.pairs if pair.number not in self.answers), None)

    @cached_property
    def _by_number(self) -> dict[int, AuditPair]:
        return {pair.number: pair for pair in self.pairs}

    def answer(self, number: int, answer: Answer) -> None:
        """Save what someone said about a pair; a second answer replaces the first."""
        if number not in self._by_number:
            raise ConfigurationError(f"the audit has no pair {number!r}; expected 0 to {len(self.pairs) - 1}")
        if answer not in ANSWER_NAMES:
            raise ConfigurationError(f"{answer!r} is not an answer; expected one of {', '.join(ANSWER_NAMES)}")
        self._append({"number": number, "answer": answer, "at": round(time.time(), 3)})
        self.answers.pop(number, None)
        self.answers[number] = answer
        self._write_dev()

    def undo(self) -> AuditPair | None:
        """Take back the last answer; return its pair, or None if there is no answer."""
        if not self.answers:
            return None
        number = next(reversed(self.answers))
        self._append({"number": number, "answer": None, "at": round(time.time(), 3)})
        del self.answers[number]
        self._write_dev()
        return self._by_number[number]

    def promise(self, precision: float, *, confidence: float = 0.9) -> Promise:
        """Return how far down the ranking `precision` is kept; `unsure` counts as not the same.

        Only full rounds count, because they have equally many pairs of each band. Decide how many pairs to answer
        before you look: stopping as soon as a promise holds makes it weaker than stated.
        """
        rounds = [self.pairs[start : start + self.bands] for start in range(0, len(self.pairs), self.bands)]
        full = [one for one in rounds if all(pair.number in self.answers for pair in one)]
        right = [0] * self.bands
        for pair in (pair for one in full for pair in one):
            right[pair.band] += self.answers[pair.number] == "same"
        return keep_promise(right, len(full), precision=precision, confidence=confidence)

    def save_promised(self, promise: Promise) -> int:
        """Write the pairs that a promise keeps to promised.jsonl, without those that were found to be wrong."""
        wrong = {(pair.id1, pair.id2) for pair in self.pairs if self.answers.get(pair.number) == "not the same"}
        kept = pq.read_table(self.folder / CANDIDATES).slice(0, promise.bands * self.band_size)
        rows = kept.select(["id1", "id2", "score", "probability"]).to_pylist()
        lines = [row for row in rows if (row["id1"], row["id2"]) not in wrong]
        _write_lines(self.folder / PROMISED, lines)
        return len(lines)

    @property
    def counts(self) -> dict[str, int]:
        """How often each answer was given."""
        return {name: list(self.answers.values()).count(name) for name in ANSWER_NAMES}

    def _read_answers(self) -> None:
        path = self.folder / ANSWERS
        if not path.exists():
            return
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):  # killed while it wrote: that answer was never confirmed
            with path.open("r+b") as file:
                file.truncate(whole)
        for place, line in enumerate(content[:whole].split(b"\n")[:-1], start=1):
            try:
                said = json.loads(line)
                number, answer = said["number"], said["answer"]
                if number not in self._by_number or answer not in (*ANSWER_NAMES, None):
                    raise ValueError("no such pair or answer")
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                reason = str(error)[:_REASON]
                raise DataError(
                    f"{path}, line {place} cannot be read ({reason}); correct or remove the line"
                ) from error
            self.answers.pop(number, None)
            if answer is not None:
                self.answers[number] = answer
        self._write_dev()

    def _append(self, line: dict[str, Any]) -> None:
        with (self.folder / ANSWERS).open("ab") as file:
            file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())

    def _write_dev(self) -> None:
        """Write the sure answers as labelled pairs, as `train --dev` reads them."""
        sure = [(self._by_number[number], answer) for number, answer in self.answers.items() if answer != "unsure"]
        _write_lines(
            self.folder / DEV,
            [
                {"sentence1": pair.text1, "sentence2": pair.text2, "score": float(answer == "same")}
                for pair, answer in sure
            ],
        )


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def _plan(folder: Path, *, pairs: int, seed: int) -> dict[str, Any]:
    """Choose pairs: equally many of bands of equal size, from the likeliest candidates to some beyond the decision."""
    try:
        table = pq.read_table(folder / CANDIDATES)
        accepted = sum(table["same"].to_pylist())
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{folder / CANDIDATES} cannot be read ({error}); run `duplicates` again") from error
    looked_at = min(len(table), max(round(accepted * (1 + _BEYOND)), pairs))
    if not looked_at:
        raise DataError(f"{folder} holds no candidates, so there is nothing to audit")
    draw = draw_pairs(looked_at, pairs, seed=seed)
    rows = table.take(pa.array([row for _, row in draw.order], pa.int64())).to_pylist()
    return {
        "bands": draw.bands,
        "band_size": draw.band_size,
        "seed": seed,
        "pairs": [
            {
                "number": number, "band": band, "id1": row["id1"], "id2": row["id2"],
                "text1": row["text1"], "text2": row["text2"], "probability": round(float(row["probability"]), 6),
            }
            for number, ((band, _), row) in enumerate(zip(draw.order, rows, strict=True))
        ],
    }  # fmt: skip
