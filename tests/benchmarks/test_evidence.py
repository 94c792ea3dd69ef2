"""The study of the signals collects every checkpoint and reads what it collected."""

import importlib
import json
from argparse import Namespace
from pathlib import Path

import pytest

from trans_encoder.data.tasks import Task, TestSet


@pytest.fixture
def evidence(monkeypatch):
    """The benchmark that collects the evidence for the weights."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("selection")


def test_evidence_is_collected_for_every_checkpoint_and_read(evidence, bert, roberta, pairs, dev, tmp_path, capsys):
    task = Task("sts", pairs, TestSet("dev", dev), {"one": TestSet("one", dev), "two": TestSet("two", dev)})
    shrunk = ["device=cpu", "bi.epochs=3", "bi.batch_size=16", "cross.batch_size=16", "cross.dev_steps=4"]
    given = Namespace(model=[str(bert), str(roberta)], text=None, pairs=96, test_pairs=30, cycles=1, set=shrunk)
    rows = list(evidence.collect(given, task, seed=0))
    places = [(row["cycle"], row["kind"], row["member"]) for row in rows]
    assert places[:2] == [(0, "bi", "bert-32"), (0, "bi", "roberta-48")]
    assert places.count((1, "bi", "bert-32")) == 3
    signals = evidence.SIGNALS
    for row in rows:
        none = {"teacher", "partner", "others"} if row["cycle"] == 0 else set()
        assert {name for name, value in row["signals"].items() if value is None} == none
        assert row["signals"].keys() == signals.keys()
    evidence.analyse(json.loads(json.dumps(rows)), tmp_path / "plot.svg")
    table = capsys.readouterr().out
    assert all(table.count(f"\n| {name} |") == 2 for name in [*signals, "label-free score", "the last one"])
    choices = table.partition("### What is chosen without labels")[2].splitlines()[4:]
    assert [line.split(" | ")[1] for line in choices] == ["cross", "bi"] * 2
    assert all(line.count(" | ") == 8 for line in choices)
    assert "</svg>" in (tmp_path / "plot.svg").read_text()


def test_the_loss_of_a_choice_is_what_dev_would_have_gained(evidence):
    rows = [
        {"dev": 60, "sts": 55.0, "step": 1},
        {"dev": 62, "sts": 57.5, "step": 2},
        {"dev": 61, "sts": 56.0, "step": 3},
    ]
    assert evidence._loss(rows, key=lambda row: row["step"]) == 1.5
    assert evidence._loss(rows, key=lambda row: row["dev"]) == 0
