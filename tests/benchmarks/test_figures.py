"""The figures quoted in the documentation are those of the stored results."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    sys.modules.pop("figures", None)
    import figures

    return figures


def test_every_quoted_figure_is_the_stored_one(figures):
    listed = tomllib.loads((figures.FIGURES / "figures.toml").read_text(encoding="utf-8"))["figure"]
    assert {figure["data"] for figure in listed} == {path.name for path in figures.FIGURES.glob("*.json")}
    assert [problem for figure in listed for problem in figures.problems_of(figure)] == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("| taught | 81.4 | 1,200 |", None),
        ("| taught | 81.5 | 1,200 |", "shows 81.5, data.json has 81.40 (seeds/*/average)"),
        ("| taught | 81.4 |", "has 1 figures, expected 2"),
        ("| start | 81.4 | 1,200 |", "0 lines begin with"),
    ],
)
def test_a_figure_that_differs_is_named(figures, tmp_path, monkeypatch, line, problem):
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    (tmp_path / "page.md").write_text(f"{line}\n", encoding="utf-8")
    stored = {"seeds": [{"average": 81.3}, {"average": 81.5}], "pairs": 1200}
    (tmp_path / "data.json").write_text(json.dumps(stored), encoding="utf-8")
    quote = {"file": "page.md", "line": "| taught |", "values": ["seeds/*/average", "pairs"]}
    found = figures.problems_of({"data": "data.json", "quotes": [quote]})
    assert len(found) == (problem is not None)
    assert all(problem in each for each in found)
