"""Trackers: what they log is in the run folder, whatever happens to the run, and changes nothing else of it."""

import json
import os
from importlib.util import find_spec

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from conftest import TINY_RUN, contents
from killing import killed
from trans_encoder.config import make_config
from trans_encoder.data.text import Text
from trans_encoder.errors import MissingExtraError
from trans_encoder.pipelines.distil import distil
from trans_encoder.pipelines.from_text import prepare
from trans_encoder.pipelines.planning import plan_run
from trans_encoder.runs.trackers import tracked

SETTINGS = {**TINY_RUN, "cycles": 1}


@pytest.fixture(scope="module")
def again(bert, pairs, dev):
    """Return a function that does a tracked run in a folder."""

    def run(out, **changes):
        return distil(pairs, f"{bert}={bert}", dev=dev, out=out, **{"trackers": ["tensorboard"], **SETTINGS, **changes})

    return run


@pytest.fixture(scope="module")
def run(again, tmp_path_factory):
    """A finished tracked run. Do not change it."""
    return again(tmp_path_factory.mktemp("tracked") / "run").folder


def logged(folder, tag="train/loss"):
    """Return step and value of everything that was logged under a tag."""
    events = EventAccumulator(str(folder)).Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_each_training_has_its_own_folder_of_events(run):
    assert sorted(path.name for path in (run / "logs").iterdir()) == ["cycle-1-bert-32-bi", "cycle-1-bert-32-cross"]
    assert [step for step, _ in logged(run / "logs" / "cycle-1-bert-32-cross")] == [5, 10]
    losses = logged(run / "logs" / "cycle-1-bert-32-bi")
    assert [step for step, _ in losses] == [4, 8, 12]
    assert all(value > 0 for _, value in losses)
    assert logged(run / "logs" / "cycle-1-bert-32-bi", tag="train/learning_rate")
    scores = logged(run / "logs" / "cycle-1-bert-32-bi", tag="train/score")
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    expected = [(line["step"], line["score"]) for line in history if line["kind"] == "bi" and line["cycle"]]
    assert [(step, pytest.approx(score)) for step, score in expected] == scores


def test_nothing_else_of_the_run_changes(again, run, tmp_path):
    plain = contents(again(tmp_path / "run", trackers=[]).folder)
    tracked_run = {file: content for file, content in contents(run).items() if not file.startswith("logs/")}
    del plain["config.json"], tracked_run["config.json"]
    assert tracked_run == plain


def test_a_killed_run_keeps_its_events_and_adds_to_them(again, run, tmp_path):
    folder = tmp_path / "run"
    assert killed(again, folder, place="cycle-1/bert-32/cross")
    logs = folder / "logs" / "cycle-1-bert-32-cross"
    before = sorted(logs.iterdir())
    again(folder)
    assert set(before) < set(logs.iterdir())
    assert {step for step, _ in logged(logs)} == {step for step, _ in logged(run / "logs" / logs.name)}
    assert not list(folder.rglob("*.training"))


def test_lost_logs_are_not_damage(again, run, tmp_path, caplog):
    folder = again(tmp_path / "run").folder
    for path in sorted((folder / "logs").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    again(folder)
    assert not [record for record in caplog.records if "done again" in record.getMessage()]


def test_the_environment_is_put_back(tmp_path, monkeypatch):
    for before in (None, "mine"):
        monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
        if before:
            monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", before)
        with tracked(["tensorboard"], tmp_path / "logs" / "stage"):
            assert os.environ["TENSORBOARD_LOGGING_DIR"] == str(tmp_path / "logs" / "stage")
        assert os.environ.get("TENSORBOARD_LOGGING_DIR") == before


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
def test_wandb_logs_each_training_to_its_own_folder(again, run, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = again(tmp_path / "run", trackers=["wandb"]).folder
    logs = {path.name: list(path.glob("wandb/offline-run-*/*.wandb")) for path in (folder / "logs").iterdir()}
    assert set(logs) == {path.name for path in (run / "logs").iterdir()}
    assert all(len(files) == 1 for files in logs.values())


@pytest.mark.skipif(find_spec("wandb") is not None, reason="wandb is installed")
def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_done(again, bert, pairs, sentences, tmp_path):
    config = make_config([str(bert)], overrides={"trackers": ["wandb"]})
    text = Text.from_sentences(sentences)
    for work in (
        lambda: again(tmp_path / "run", trackers=["wandb"]),
        lambda: plan_run(config, pairs),
        lambda: prepare(config, text, out=tmp_path / "run"),
    ):
        with pytest.raises(MissingExtraError, match=r'pip install "trans-encoder\[wandb\]"'):
            work()
    assert not (tmp_path / "run").exists()
