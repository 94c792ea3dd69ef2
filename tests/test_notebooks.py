"""The notebooks run from top to bottom, on tiny models, and are committed without outputs."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
PRINTS = {
    "find_duplicates": "[0.",
    "score_and_evaluate": "of 100 cases right",
    "teach_a_strong_encoder": "report.html",
}
"""Something that only the last cell prints."""


def cells(notebook):
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    return content["cells"]


def test_every_notebook_is_run():
    assert [notebook.stem for notebook in NOTEBOOKS] == sorted(PRINTS)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(notebook, bert, roberta, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODEL", str(bert))
    monkeypatch.setenv("TEACHER", str(roberta))
    names: dict[str, object] = {}
    for cell in cells(notebook):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}:{cell['id']}", "exec"), names)
    assert PRINTS[notebook.stem] in capsys.readouterr().out


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_committed_without_outputs(notebook):
    found = cells(notebook)
    assert len({cell["id"] for cell in found}) == len(found)
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in found if "outputs" in cell)
