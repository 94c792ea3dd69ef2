"""The paper's own figures, from paper.toml: what it printed in the cell that corresponds to one of ours."""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from trans_encoder.errors import ConfigurationError

Figure = float | str
"""A number, or in a few tables a word."""


@cache
def paper_tables() -> dict[str, dict[str, Any]]:
    """Return the paper's tables by their names."""
    return tomllib.loads((files(__package__) / "paper.toml").read_text(encoding="utf-8"))


def paper_models() -> dict[str, str]:
    """Return the hub name of each of the paper's models, by the paper's name for it."""
    return dict(paper_tables()["model_url"]["names"])


def hub_names(models: Sequence[str], *, large: bool) -> list[str]:
    """Return the hub names of the paper's models, or of their large variants."""
    wanted = [model.replace("-base", "-large") for model in models] if large else models
    missing = [model for model in wanted if model not in paper_models()]
    if missing:
        raise ConfigurationError(f"the paper has no {', '.join(missing)}; give the models to use with --models")
    return [paper_models()[model] for model in wanted]


def find_reference(table: str | None, *, model: str, large: bool) -> str | None:
    """Choose the paper's model to compare a model with: itself if the paper has it, else BERT of its size."""
    rows: dict[str, Any] = paper_tables()[table]["rows"] if table else {}
    size = "large" if large else "base"
    itself = [name for name, hub in paper_models().items() if hub == model]
    return _first([*itself, f"SimCSE-BERT-{size}", f"{size} models", "all models", *rows], rows)


def find_team_reference(table: str | None, *, large: bool) -> str | None:
    """Choose the paper's rows to compare a team with."""
    size = "large" if large else "base"
    return _first([f"{size} ensemble", f"{size} models"], paper_tables()[table]["rows"] if table else {})


def figure(table: str | None, *, reference: str | None, row: str, column: str) -> Figure | None:
    """Return what the paper printed in a cell, if it has that cell."""
    if table is None or reference is None:
        return None
    content = paper_tables()[table]
    figures = dict(zip(content["columns"], content["rows"][reference].get(row, ()), strict=False))
    return figures.get(column)


def _first(names: Sequence[str], known: dict[str, Any]) -> str | None:
    return next((name for name in names if name in known), None)
