"""Some faults of every kind, put into real runs; `make faults` does it at length."""

from random import Random

import pytest

from faults.campaign import all_faults
from faults.kills import changes
from faults.laboratory import Laboratory, forked
from faults.plan import suffer
from faults.storage import altered, can_mount, damage
from trans_encoder.report import ModelKey, save_evaluation, write_report
from trans_encoder.runs import manifest


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def lab(root):
    """The laboratory, with its undisturbed run."""
    return Laboratory.build(root)


@pytest.fixture(scope="module")
def faults(lab, root):
    """Every fault, of which the tests take a sample."""
    return all_faults(lab, root, seed=5, others=20, times=20, each=1)


def not_survived(faults, lab, root):
    outcomes = [suffer(fault, lab, root / f"{number}-{fault.kind}") for number, fault in enumerate(faults)]
    return [outcome for outcome in outcomes if outcome.problem]


def test_a_killed_run_ends_the_same(lab, faults, root):
    kills = [fault for fault in faults if fault.kind.startswith("killed") and "," not in fault.kind]
    assert len(kills) > 150
    kinds = sorted({fault.kind for fault in kills})
    assert len(kinds) == 4
    chosen = [fault for kind in kinds for fault in [each for each in kills if each.kind == kind][7::53]]
    assert not_survived(chosen, lab, root) == []


@pytest.mark.parametrize("job", ["index", "duplicates", "audit", "learn", "bootstrap", "text", "export", "ensemble"])
def test_other_jobs_that_are_killed_end_the_same(lab, faults, root, job):
    kills = [fault for fault in faults if fault.kind.endswith(f", {job}")]
    assert len(kills) > 10
    assert not_survived(kills[3 :: max(1, len(kills) // 3)], lab, root / job) == []


def test_a_run_survives_its_storage(lab, faults, root):
    chosen = [fault for fault in faults if not fault.kind.startswith("killed")]
    assert len({fault.kind for fault in chosen}) == (7 if can_mount() else 6)
    assert not_survived(chosen, lab, root) == []


def test_every_write_is_known(lab, root):
    places = [change.place for change in changes(lab, root / "known") if change.is_write]
    written = {place.removeprefix(f"{root}/known/") for place in places}
    assert {"config.json", "manifest.json", "pairs.arrow", "history.jsonl", "result.json"} <= written
    assert {"cycle-2/labels-cross.parquet", "cycle-2/roberta/bi", "best/bert/cross"} <= written


REPORTED = ("config.json", "manifest.json", "history.jsonl", "cycle-1/labels-bi.parquet", "evaluation/t.parquet")


@pytest.mark.parametrize("name", REPORTED)
def test_a_report_of_a_damaged_run_names_the_file(lab, tmp_path, name):
    run = lab.copy(tmp_path / "run")
    save_evaluation(run, "t", metric="auc", gold=[0, 1], scores={ModelKey("start", "bert", "bi"): [0.1, 0.2]})
    whole = (run / name).read_bytes()
    for how in ("flipped", "flipped", "cut", "zeroed"):
        damage(run / name, how=how, random=Random(f"{name} {how}"))
        ended = forked(lambda: write_report([run]))
        assert ended.code == 0 or (ended.code == 1 and str(run) in ended.error), ended
        (run / name).write_bytes(whole)


@pytest.mark.parametrize("damaged", [b'"second3": ', b'"seconds": NaN, "other": '])
def test_a_report_names_a_manifest_that_does_not_say_what_a_stage_took(lab, tmp_path, damaged):
    run = lab.copy(tmp_path / "run")
    content = (run / "manifest.json").read_bytes()
    (run / "manifest.json").write_bytes(content.replace(b'"seconds": ', damaged, 1))
    ended = forked(lambda: write_report([run]))
    assert ended.code == 1, ended
    assert "manifest.json" in ended.error


def test_what_is_not_survived_is_noticed(lab, root, monkeypatch):
    monkeypatch.setattr(manifest, "_is_whole", lambda *_: True)
    fault = altered("cycle-1/bert/bi/model.safetensors", how="flipped", seed=0)
    assert "different: " in suffer(fault, lab, root / "noticed").problem
