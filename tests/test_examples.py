"""Every file in examples/ runs, on tiny models."""

import runpy
import sys
from pathlib import Path

import pytest

from trans_encoder.data.writers import write_pairs
from trans_encoder.encoders import load_encoder

EXAMPLES = Path(__file__).parent.parent / "examples"
ARGUMENTS = {
    "self_distillation": ["{bert}", "pairs.jsonl", "run"],
    "mutual_distillation": ["{bert}", "{roberta}", "pairs.jsonl", "dev.jsonl", "run"],
    "pseudo_labels": ["{bert}", "{roberta}", "pairs.jsonl", "labels.parquet"],
}


@pytest.fixture
def run_example(pairs, dev, bert, roberta, tmp_path, monkeypatch, capsys):
    """Return a function that runs an example in a folder with the files that it names and returns what it printed."""
    monkeypatch.chdir(tmp_path)
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    write_pairs(dev, tmp_path / "dev.jsonl")

    def run(name):
        arguments = [argument.format(bert=bert, roberta=roberta) for argument in ARGUMENTS[name]]
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(ARGUMENTS)


def test_self_distillation(run_example, tmp_path):
    printed = run_example("self_distillation")
    assert "(2, 32)" in printed
    assert load_encoder(tmp_path / "run" / "best" / "cross").kind == "cross"


def test_mutual_distillation(run_example):
    printed = run_example("mutual_distillation")
    assert printed.count("start") == 2
    assert "{'dev': " in printed


def test_pseudo_labels(run_example, tmp_path):
    assert len(run_example("pseudo_labels").splitlines()) == 5
    assert (tmp_path / "labels.parquet").exists()
