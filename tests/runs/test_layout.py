"""The names of a run folder: in one place, and as docs/architecture.md says."""

import ast
import re
from pathlib import Path

import pytest

import trans_encoder
from trans_encoder.runs.layout import Layout, scratch, training_record

SOURCE = Path(trans_encoder.__file__).parent
LAYOUT = SOURCE / "runs" / "layout.py"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != LAYOUT)
NAMES = re.compile(
    r"cycle-|labels-(bi|cross|$)|start-labels|from-text|training\.json|manifest\.json|environment\.json|history\.jsonl"
    r"|result\.json|start\.json|pairs\.arrow|text\.arrow|mining\.json|inputs\.json|attempts\.json|\.training\b"
)
FOLDERS = {"best", "bi", "cross", "logs", "evaluation", "mined", "report.html"}


def spelt_out(path: Path) -> list[str]:
    """Return the names of a run folder's files that a module spells out, docstrings aside."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    found = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if NAMES.search(node.value)
    ]
    joined = [node.right for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
    joined += [
        part for node in ast.walk(tree) if isinstance(node, ast.Call) and is_path(node.func) for part in node.args
    ]
    return found + [node.value for node in joined if isinstance(node, ast.Constant) and node.value in FOLDERS]


def is_path(function: ast.expr) -> bool:
    """Whether calling this makes a path of its arguments."""
    return ast.unparse(function).rpartition(".")[2] in ("Path", "joinpath", "with_name", "glob", "rglob")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_only_the_layout_spells_out_names_of_a_run_folder(path):
    assert spelt_out(path) == []


def test_names_that_are_spelt_out_are_found(tmp_path):
    assert {"start.json", "best", "cycle-", "logs", "labels-"} <= set(spelt_out(LAYOUT))
    module = tmp_path / "module.py"
    module.write_text('folder.joinpath("best", member)\nfolder.glob("cycle-*")\n(folder / f"labels-{kind}.parquet")\n')
    assert sorted(spelt_out(module)) == ["best", "cycle-*", "labels-"]


def test_places_in_a_run_folder(tmp_path):
    layout = Layout(tmp_path)
    names = {
        "pairs.arrow": layout.pairs(),
        "cycle-2/pairs.arrow": layout.pairs(2),
        "cycle-2/labels-cross.parquet": layout.labels(2, "cross"),
        "cycle-2/start-labels.parquet": layout.start_labels(2),
        "cycle-1/bert/bi": layout.student(1, "bert", "bi"),
        "cycle-1/bert/bi.training": scratch(layout.student(1, "bert", "bi")),
        "cycle-1/bert/bi/training.json": training_record(layout.student(1, "bert", "bi")),
        "best/cross": layout.best(None, "cross"),
        "best/bert/cross": layout.best("bert", "cross"),
        "logs/cycle-1-bert-bi": layout.logs(1, "bert", "bi"),
        "evaluation/a-b.parquet": layout.evaluation("a/b"),
        "from-text/bert/bi": layout.bootstrap("bert").trained("bi"),
        "from-text/pairs/mined": layout.mining.mined,
    }
    assert {name: layout.name(path) for name, path in names.items()} == {name: name for name in names}


def test_label_files_are_found_in_the_order_in_which_they_were_made(tmp_path):
    layout = Layout(tmp_path)
    for cycle, kind in ((10, "bi"), (2, "cross"), (2, "bi")):
        layout.labels(cycle, kind).parent.mkdir(exist_ok=True)
        layout.labels(cycle, kind).touch()
    layout.start_labels(2).touch()
    (tmp_path / "cycle-x").mkdir()
    (tmp_path / "cycle-x" / "labels-bi.parquet").touch()
    assert [(each.cycle, each.kind) for each in layout.label_files()] == [(2, "bi"), (2, "cross"), (10, "bi")]
