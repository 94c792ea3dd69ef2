"""What was found: pairs of rows, groups of rows, and the files that hold them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from trans_encoder.answers.objects import is_url, without_credentials
from trans_encoder.answers.probability import Probability
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.files import atomic_file, read_json, write_json

PAIRS, GROUPS, CANDIDATES, SUMMARY = "pairs.jsonl", "groups.jsonl", "candidates.parquet", "duplicates.json"


@dataclass(frozen=True)
class DuplicatePair:
    """Two rows that count as the same."""

    id1: str
    id2: str
    score: float
    probability: float
    differs: str | None = None
    """The flip that alone separates the texts; only where flips were let count as the same."""


@dataclass(frozen=True)
class Group:
    """Rows that mean the same."""

    group: int
    ids: list[str]
    representative: str
    texts: list[str] = field(repr=False)
    against: list[str] = field(default_factory=list)
    """Rows of the other file, where two were compared."""
    against_texts: list[str] = field(default_factory=list, repr=False)

    @property
    def text(self) -> str:
        """The text of the representative."""
        return self.texts[self.ids.index(self.representative)]


@dataclass(frozen=True)
class Duplicates:
    """What `find_duplicates` found: iterating gives the groups, largest first."""

    pairs: list[DuplicatePair]
    groups: list[Group]
    probability: Probability
    rows: int
    summary: dict[str, Any]
    """Models, decision and counts."""
    candidates: pa.Table = field(repr=False)
    """All pairs worth a look, likely first: `id1`, `id2`, both texts, `score`, `probability`, `low`, `high`, `same` and
    `differs` (the flip that alone separates the texts)."""

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def save(self, folder: str | Path) -> None:
        """Write pairs.jsonl, groups.jsonl, candidates.parquet and duplicates.json into a folder."""
        place = Path(folder)
        check_target(place)
        place.mkdir(parents=True, exist_ok=True)
        if not (place / SUMMARY).exists():
            write_json(place / SUMMARY, {})  # from now on the files are known as ours, even after a kill
        _write_lines(place / PAIRS, (_pair_line(pair) for pair in self.pairs))
        _write_lines(place / GROUPS, (_group_line(group) for group in self.groups))
        with atomic_file(place / CANDIDATES) as temporary:
            pq.write_table(self.candidates, temporary)
        write_json(place / SUMMARY, {**self.summary, "rows": self.rows, "probability": self.probability.to_dict()})

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Read back what `save` wrote, except the texts of groups."""
        place = Path(folder)
        try:
            summary = read_json(place / SUMMARY)
            pairs = [DuplicatePair(**line) for line in _read_lines(place / PAIRS)]
            groups = [Group(**{"texts": [], **line}) for line in _read_lines(place / GROUPS)]
            candidates = pq.read_table(place / CANDIDATES)
            probability = Probability.from_dict(summary.pop("probability"))
            return cls(pairs, groups, probability, summary.pop("rows"), summary, candidates)
        except (OSError, ValueError, KeyError, TypeError, RecursionError, pa.ArrowException) as error:
            raise DataError(f"{folder} does not hold what `duplicates` writes ({error}); run it again") from error


def title_of(source: str) -> str:
    """Return what a page about a place is called: the last part of its name."""
    return Path(without_credentials(source)).name


def check_target(folder: Path) -> None:
    """Refuse to replace files of the user's that have the names of ours."""
    if is_url(folder):
        raise ConfigurationError(
            f"{without_credentials(str(folder))} is a URL; give a folder on a disk (--out), where an audit can keep "
            "every answer at once"
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"{folder} is a file; give a folder (--out)")
    if (folder / SUMMARY).exists():
        return
    if others := [name for name in (PAIRS, GROUPS, CANDIDATES) if (folder / name).exists()]:
        raise ConfigurationError(
            f"{folder / others[0]} is there already and was not written by `duplicates`; give another folder (--out)"
        )


def _pair_line(pair: DuplicatePair) -> dict[str, Any]:
    line = dict(vars(pair))
    return line if pair.differs else {name: value for name, value in line.items() if name != "differs"}


def _group_line(group: Group) -> dict[str, Any]:
    line: dict[str, Any] = {"group": group.group, "ids": group.ids, "representative": group.representative}
    return {**line, "against": group.against} if group.against else line


def _write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
