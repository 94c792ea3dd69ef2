"""The figures quoted in the documentation are those of the stored results."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from documented import check, commands

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


PAGE = """# Page

```bash
# not a heading
python benchmarks/one.py --model MODEL
```

## With its own command

`python benchmarks/two.py` gave:

| a | 1.5 |

## Without

### Inside

| b | 2.5 |

## Text

It is 3.5.
"""


def test_every_section_with_figures_is_listed_with_its_commands(figures, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    found, problems = figures.sources([tmp_path / "page.md"])
    one, two = "python benchmarks/one.py --model MODEL", "python benchmarks/two.py"
    assert [(section.titles[-1], commands) for section, commands in found] == [
        ("With its own command", [two]),
        ("Inside", [one]),
        ("Text", [one]),
    ]
    assert problems == []


def test_a_table_without_a_command_is_named(figures, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("# Page\n\n| b | 2.5 |\n\n## Text\n\nIt is 3.5.\n", encoding="utf-8")
    assert figures.sources([tmp_path / "page.md"])[1] == ["page.md: the table of 'Page' has no command"]


def test_figures_of_the_readme_that_no_stored_result_has_are_named(figures, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    lines = ["| taught | 81.4 |", "Python 3.11 or later", "It is 2.4 times as fast.", "`--set a=0.5` is not one"]
    (tmp_path / "README.md").write_text("# Readme\n\n" + "\n".join(lines), encoding="utf-8")
    quoted = {"quotes": [{"file": "README.md", "line": "| taught |"}]}
    (problem,) = figures.uncovered([quoted], ["Python 3.11"])
    assert "'It is 2.4 times as fast.'" in problem


def test_readme_and_docs_are_covered(figures):
    listed = tomllib.loads((figures.FIGURES / "figures.toml").read_text(encoding="utf-8"))
    assert figures.uncovered(listed["figure"], listed["plain"]) == []
    assert figures.sources(figures.pages())[1] == []


def test_programs_take_the_commands_that_made_the_figures(tmp_path, monkeypatch):
    listed = tomllib.loads((ROOT / "docs" / "figures" / "figures.toml").read_text(encoding="utf-8"))["figure"]
    for figure in listed:
        found = commands(figure["commands"], tmp_path)
        assert found, figure["data"]
        for words in found:
            check(words, monkeypatch)
