"""One student from saved labels: ours or anybody's, continued after a kill, wrong scores told with file and line."""

import json
from functools import partial

import numpy as np
import pytest
import sentence_transformers
from typer.testing import CliRunner

from conftest import contents
from killing import killed_until_it_ends
from trans_encoder.cli import app
from trans_encoder.config import MemberConfig, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.writers import write_pairs
from trans_encoder.distill.labels import label
from trans_encoder.encoders import BiEncoder
from trans_encoder.errors import ConfigurationError, DataError, RunError
from trans_encoder.fast.runner import FastRunner
from trans_encoder.pipelines.learn import Learn, learn, read_labels
from trans_encoder.runner import PlainRunner

QUICK = {"batch_size": 16, "learning_rate": 1e-3, "checkpoint_steps": 2, "dev_steps": 3, "max_tokens": 32}
SETTINGS = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def labels(dev, tmp_path):
    write_pairs(dev, tmp_path / "labels.jsonl")
    return tmp_path / "labels.jsonl"


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_a_student_learns_the_labels_of_a_teacher(bert, roberta, pairs, kind, tmp_path):
    label(pairs, [BiEncoder.load(roberta, pooling="mean")]).save(tmp_path / "labels.parquet")
    out = tmp_path / "out"
    result = json.loads(
        run(
            "learn", tmp_path / "labels.parquet", "--model", bert, "--kind", kind, "--out", out, *SETTINGS, "--json"
        ).stdout
    )
    assert result == {"out": str(out / kind), "kind": kind, "model": str(bert), "labels": len(pairs)}
    plain = {"bi": sentence_transformers.SentenceTransformer, "cross": sentence_transformers.CrossEncoder}[kind]
    plain(str(out / kind), device="cpu")
    assert "labelled pairs" in (out / kind / "README.md").read_text(encoding="utf-8")
    record = json.loads((out / kind / "training.json").read_text(encoding="utf-8"))
    assert record["labels"] == len(pairs)
    assert record["history"]


def test_scores_of_people_are_mapped_and_a_dev_set_chooses(bert, dev, tmp_path):
    people = dev.with_scores(np.asarray(dev.scores) * 5)
    write_pairs(people, tmp_path / "people.csv")
    mapped = read_labels(tmp_path / "people.csv", score_range=(0, 5))
    np.testing.assert_allclose(mapped.scores, dev.scores)
    encoder = learn(
        tmp_path / "people.csv", str(bert), kind="bi", out=tmp_path / "out", score_range=(0, 5), dev=dev, **QUICK
    )
    record = json.loads((tmp_path / "out" / "bi" / "training.json").read_text(encoding="utf-8"))
    assert record["best_score"] == max(moment["score"] for moment in record["history"])
    assert encoder.kind == "bi"


@pytest.mark.parametrize("score_range", [None, (-1, 1)])
def test_a_score_that_rounding_left_just_outside_is_the_end_of_the_range(tmp_path, score_range):
    scored = PairSet.from_lists(["a", "b", "c"], ["d", "e", "f"], scores=[1.0009, -1.0009, 0.0])
    write_pairs(scored, tmp_path / "labels.jsonl")
    read = read_labels(tmp_path / "labels.jsonl", score_range=score_range)
    assert read.scores.tolist() == ([1, -1, 0] if score_range is None else [1, 0, 0.5])


def test_a_students_prompts_are_saved(bert, dev, tmp_path):
    member = MemberConfig(bi=str(bert), prompt="quiet: ", pooling="cls")
    encoder = learn(dev, member, kind="bi", out=tmp_path / "out", **QUICK)
    assert (encoder.prompts[0].text, encoder.pooling) == ("quiet: ", "cls")


def test_a_killed_training_continues_to_the_same_bytes(bert, dev, tmp_path):
    again = partial(learn, dev, str(bert), kind="cross", **QUICK)
    again(out=tmp_path / "whole")
    kills = killed_until_it_ends(lambda out: again(out=out), tmp_path / "killed", write=2)
    assert kills > 1
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_the_speed_ups_can_be_switched_off(bert, dev, kind, monkeypatch):
    monkeypatch.delenv("TRANS_ENCODER_FAST", raising=False)
    for fast, runner in ((True, FastRunner), (False, PlainRunner)):
        work = Learn(make_config([str(bert)], overrides={"fast": fast}), kind, dev)
        assert type(work.load().runner) is runner


def test_settings_that_nothing_would_use_are_refused(bert, dev, labels, tmp_path):
    for setting in ({"cycles": 3}, {"trackers": ("tensorboard",)}, {"cross": {"epochs": 2}}, {"cross.epochs": 2}):
        with pytest.raises(ConfigurationError, match=f"{next(iter(setting))[:5]}.*only for the cycles of a run"):
            learn(dev, str(bert), kind="bi", out=tmp_path / "out", **setting)
    arguments = ("learn", labels, "--model", bert, "--kind", "bi", "--out", tmp_path / "out")
    assert "hard_pairs: only for" in run(*arguments, "--set", "hard_pairs=0.5", code=2).stderr
    assert not (tmp_path / "out").exists()


def test_another_training_does_not_go_on_in_the_folder(bert, dev, tmp_path):
    learn(dev, str(bert), kind="bi", out=tmp_path / "out", **QUICK)
    with pytest.raises(RunError, match="seed"):
        learn(dev, str(bert), kind="bi", out=tmp_path / "out", **{**QUICK, "seed": 7})


def test_a_score_outside_the_range_is_told_with_its_line(labels, bert, tmp_path):
    lines = labels.read_text(encoding="utf-8").splitlines()
    lines[6] = json.dumps({**json.loads(lines[6]), "score": 4.5})
    labels.write_text("\n".join(lines), encoding="utf-8")
    arguments = ("learn", labels, "--model", bert, "--kind", "bi", "--out", tmp_path / "out", *SETTINGS)
    said = run(*arguments, code=2).stderr
    assert "labels.jsonl:7: the score is outside -1 to 1" in said
    assert "--range 0,5" in said
    assert json.loads(run(*arguments, "--skip-bad", "--json").stdout)["labels"] == len(lines) - 1
    assert "--range 5: expected two numbers" in run(*arguments, "--range", "5", code=2).stderr
    assert "give --kind instead" in run(*arguments, "--set", "kind=bi", code=2).stderr


def test_what_is_cut_of_the_texts_is_told_and_noted(bert, dev, tmp_path):
    long = PairSet.from_lists(["the old farmer sells " * 500], ["a boat"], scores=[0.5])
    write_pairs(dev.concat(long), tmp_path / "labels.jsonl")
    arguments = ("learn", tmp_path / "labels.jsonl", "--model", bert, "--kind", "bi", "--out", tmp_path / "out")
    told = run(*arguments, *SETTINGS).stderr
    assert "in the training, 1 of 91 texts (1.1%) is longer than 32 tokens and is cut; the longest has 2,002" in told
    record = json.loads((tmp_path / "out" / "bi" / "training.json").read_text(encoding="utf-8"))
    assert (record["cuts"]["cut"], record["cuts"]["counted"]) == (1, 91)
    assert "1 of 91 texts" in (tmp_path / "out" / "bi" / "README.md").read_text(encoding="utf-8")


def test_labels_that_a_cross_encoder_cannot_reach_are_counted_and_told(bert, dev, tmp_path):
    write_pairs(dev.with_scores(np.asarray(dev.scores) * 2 - 1), tmp_path / "labels.jsonl")
    arguments = ["learn", tmp_path / "labels.jsonl", "--model", bert, *SETTINGS, "--set", "epochs=1"]
    below = int((np.asarray(dev.scores) < 0.4995).sum())
    told = f"{below} of 48 labels were outside [0, 1]; the BCE loss clamped them"
    assert told in run(*arguments, "--kind", "cross", "--out", tmp_path / "clamped").stderr
    mapped = run(*arguments, "--kind", "cross", "--range=-1,1", "--out", tmp_path / "mapped")
    cosines = run(*arguments, "--kind", "bi", "--out", tmp_path / "cosines")
    assert "outside" not in mapped.stderr + cosines.stderr


def test_labels_without_anything_to_learn_are_refused(pairs, dev, tmp_path):
    with pytest.raises(DataError, match="no scores to learn"):
        read_labels(pairs)
    with pytest.raises(DataError, match=r"all 48 scores are 0\.5"):
        read_labels(dev.with_scores(np.full(len(dev), 0.5)))
    with pytest.raises(DataError, match="pair 1 has the score 3, outside -1 to 1"):
        read_labels(dev.with_scores(np.full(len(dev), 3.0)))
