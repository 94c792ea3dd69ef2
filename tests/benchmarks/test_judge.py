"""The study of the judge collects its runs, goes on where it was stopped, and counts answers beside the truth."""

import gzip
import importlib
import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from conftest import graded


@pytest.fixture
def judge(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    runs = importlib.import_module("judge_runs")
    monkeypatch.setattr(runs, "SIZES", {"train": 24, "held_out": 40, "test": 60})
    settings = (
        runs.Setting("mini", runs.TEAM, 1e-3, epochs=8, shares=(1.0, 0.5)),
        runs.Setting("bertmini", ("bertmini", "bm25"), 1e-3, epochs=8, pool="qqp", keep=0.7),
        runs.Setting("mini", runs.TEAM, 1e-3, epochs=8, pool="mrpc", in_batch=5.0),
    )
    monkeypatch.setattr(runs, "SETTINGS", settings)
    program = importlib.import_module("judge")
    monkeypatch.setattr(program, "SETTINGS", settings)
    return program


@pytest.fixture
def data(judge, tmp_path) -> Path:
    """Data sets in the plain format, and the pool: their pairs without scores, and pairs of no data set."""

    def write(name: str, rows: list[tuple[str, str, float]]) -> None:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(tmp_path / "data" / f"{name}.tsv.gz", "wt", encoding="utf-8") as file:
            file.write("sentence1\tsentence2\tscore\n")
            file.writelines(f"{first}\t{second}\t{score}\n" for first, second, score in rows)

    pool = list(graded(60, seed=100).rows())
    for seed, name in enumerate(judge.SETS):
        rows = [(first, second, round(score or 0)) for first, second, score in graded(160, seed=seed).rows()]
        if name in judge.STS:
            rows = list(graded(160, seed=seed).rows())
            pool += rows
        write(f"{name}/test", rows)
    for seed, (name, file) in enumerate({"mrpc": "train", "qqp": "train", "qnli": "glue_test_unlabelled"}.items()):
        write(f"{name}/{file}", list(graded(120, seed=50 + seed).rows()))
    write("sts_pool/train", pool)
    return tmp_path / "data"


def test_runs_are_collected_once_and_judged_beside_the_truth(judge, data, bert, roberta, tmp_path, capsys):
    models = [f"{name}={bert}" for name in ("mini", "bge", "bertmini", "tiny")] + [f"e5={roberta}"]
    given = Namespace(data=data, runs=[tmp_path / "runs"], model=models, first=1)
    judge.collect(given)
    collected = (tmp_path / "runs/runs.jsonl").read_text().splitlines()
    assert [json.loads(line)["share"] for line in collected] == [1.0, 0.5]
    judge.collect(Namespace(**{**vars(given), "first": None}))
    again = (tmp_path / "runs/runs.jsonl").read_text().splitlines()
    assert again[:2] == collected, "what is there is not done again"
    assert len(again) == 4
    whole, half = (np.load(tmp_path / "runs/students" / json.loads(line)["file"]) for line in again[:2])
    assert not np.allclose(whole["test sts12"], half["test sts12"], atol=1e-4)

    runs = judge.judged_runs(given)
    assert len(runs) == 2 * 7 + 1 + 1, "an STS student is judged on six sets and QQP"
    assert {run.name for run in runs if run.evidence is None and run.line["start"] == "bertmini"} == {"qqp"}
    capsys.readouterr()
    judge.report(given)
    reported, _, ablation = capsys.readouterr().out.rstrip().rpartition("\n\n")
    rows = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1:] for line in reported.splitlines()[2:]}
    assert rows["reported on"][1] == "6", "SICK-R, STS13 and STS15 of two students"
    said = [int(number) for cell in rows["reported on"][2:5] for number in cell.split(", ")]
    assert sum(said) == 6
    assert ablation.count(" merge ") == 1
    assert len(ablation.splitlines()) == 2 + 4
