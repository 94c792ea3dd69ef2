"""The outcome of a study: our figures and the paper's, as Markdown and as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from trans_encoder.paper.printed import Figure
from trans_encoder.paper.study import Statistic, Study

_NOTHING = "-"


@dataclass(frozen=True)
class Cell:
    """One figure of ours, for each seed, and the paper's."""

    values: tuple[float, ...] = ()
    """One for each seed; empty where there is nothing to measure."""
    statistic: Statistic = "each"
    paper: Figure | None = None
    digits: int = 2

    @property
    def mean(self) -> float | None:
        """The mean over the seeds."""
        return fmean(self.values) if self.values else None

    @property
    def sd(self) -> float | None:
        """The standard deviation over the seeds (of a sample)."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def text(self) -> str:
        """Our figure and, in brackets, the paper's."""
        number = self.sd if self.statistic == "sd" else self.mean
        ours = _NOTHING if number is None else f"{number:.{self.digits}f}"
        if self.statistic == "each" and self.sd is not None:
            ours += f" ± {self.sd:.2f}"
        if self.paper is None:
            return ours
        if isinstance(self.paper, str):
            return f"({self.paper})"
        return f"{ours} ({self.paper:.2f})"

    def to_dict(self) -> dict[str, Any]:
        """Return the cell as plain values."""
        return {"values": list(self.values), "mean": self.mean, "sd": self.sd, "paper": self.paper}


@dataclass(frozen=True)
class Line:
    """One row: a model, or all of them, and the paper's row it is compared with."""

    model: str
    label: str
    reference: str | None
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class Table:
    """A finished study."""

    study: Study
    settings: Mapping[str, Any]
    """Models, preset, scale, seeds and numbers of pairs."""
    lines: tuple[Line, ...]
    runs: tuple[str, ...] = ()
    """The runs that the figures come from."""
    notes: tuple[str, ...] = field(default=())

    @property
    def header(self) -> list[str]:
        """The headings of what is shown: columns that say nothing at all are left out."""
        return ["model", "row", *self._columns]

    @property
    def body(self) -> list[list[str]]:
        """The rows of what is shown."""
        return [[line.model, line.label, *(line.cells[name].text for name in self._columns)] for line in self.lines]

    @property
    def caption(self) -> str:
        """What a reader of the table must know."""
        beside: dict[str | None, dict[str, None]] = {}
        for line in self.lines:
            if any(cell.paper is not None for cell in line.cells.values()):
                beside.setdefault(line.reference, {})[line.model] = None
        named = "; ".join(f"{reference} beside {', '.join(models)}" for reference, models in beside.items())
        parts = [self.study.note, f"In brackets the paper's: {named}." if named else "", *self.notes]
        return " ".join(part for part in parts if part)

    @property
    def _columns(self) -> list[str]:
        cells = {name: [line.cells[name] for line in self.lines] for name in self.study.labels}
        return [name for name, column in cells.items() if any(cell.text != _NOTHING for cell in column)]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain values, ready for JSON."""
        return {
            "experiment": self.study.name,
            "shows": self.study.shows,
            "paper": list(self.study.paper),
            "settings": dict(self.settings),
            "columns": self.study.labels,
            "rows": [
                {
                    "model": line.model,
                    "row": line.label,
                    "reference": line.reference,
                    "cells": {name: cell.to_dict() for name, cell in line.cells.items()},
                }
                for line in self.lines
            ],
            "runs": list(self.runs),
            "notes": list(self.notes),
        }

    def to_markdown(self) -> str:
        """Return the table with its settings as a Markdown page."""
        rules = ["---", "---", *["--:"] * len(self._columns)]
        rows = [self.header, rules, *self.body]
        settings = [f"- {name}: {_listed(value)}" for name, value in self.settings.items()]
        title = f"# {self.study.name}: {self.study.shows} ({', '.join(self.study.paper)})"
        lines = [title, "", *(f"| {' | '.join(row)} |" for row in rows), "", self.caption, "", *settings]
        return "\n".join(lines) + "\n"


def _listed(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items()) or "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
