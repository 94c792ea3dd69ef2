"""Numbers that go wrong, and inputs at the edge: each is noticed, named by cycle, member and stage, with the remedy."""

import shutil
from itertools import count

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import TINY_RUN
from trans_encoder.config import TrainingPlan
from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.labels import label
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.training import TrainingOptions, train
from trans_encoder.errors import ConfigurationError, DataError, RunError, TransEncoderError
from trans_encoder.pipelines.distil import distil

ONE_CYCLE = {**TINY_RUN, "cycles": 1}


@pytest.fixture
def attempt(pairs, bert, dev, tmp_path):
    """Return a function that does a run that must fail, and returns what it said."""
    number = count()

    def run(**changes):
        given = {"pairs": pairs, "models": str(bert), "dev": dev, **ONE_CYCLE, **changes}
        with pytest.raises(TransEncoderError) as caught:
            distil(given.pop("pairs"), given.pop("models"), out=tmp_path / f"run-{next(number)}", **given)
        return str(caught.value)

    return run


@pytest.fixture
def spoilt(bert, tmp_path):
    """Return a function that makes a model whose weights are all multiplied by a number."""

    def make(factor):
        folder = tmp_path / "spoilt"
        shutil.copytree(bert, folder)
        weights = load_file(folder / "model.safetensors")
        changed = {name: weight * factor for name, weight in weights.items()}
        save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
        return str(folder)

    return make


def plan(kind, **changes):
    return {**TINY_RUN[kind], **changes}


@pytest.mark.parametrize("judged", [True, False])
@pytest.mark.parametrize("kind", ["cross", "bi"])
def test_a_training_that_diverges_is_stopped(attempt, dev, kind, judged):
    said = attempt(dev=dev if judged else None, **{kind: plan(kind, learning_rate=1e30)})
    assert said.startswith(f"cycle 1, {kind}-encoder of bert-32: ")
    assert "no longer finite numbers after step" in said or "the loss is nan at step" in said
    assert "lower the learning rate (now 1e+30) or use --set precision=fp32" in said


def test_an_infinite_loss_is_named_with_its_step(bert, pairs, tmp_path):
    labelled = pairs.with_scores(np.where(np.arange(len(pairs)) == 40, 3e38, 0.5))
    settings = TrainingPlan(batch_size=16, epochs=1, learning_rate=1e-4, max_tokens=32, loss="mse")
    student = BiEncoder.load(bert, max_tokens=32)
    with pytest.raises(RunError, match=r"^training: the loss is inf at step \d; lower the learning rate"):
        train(student, labelled, plan=settings, options=TrainingOptions(folder=tmp_path / "t"))


@pytest.mark.parametrize("selection", ["label-free", "last"])
@pytest.mark.parametrize(
    ("factor", "what", "remedy"),
    [
        (0.0, "pairs the score 0. The encoder has collapsed", "start from another bi-encoder"),
        (float("nan"), "pairs a score that is not a number, the first at pair 1", "lower bi.learning_rate"),
    ],
)
def test_a_broken_start_is_a_broken_teacher(attempt, spoilt, factor, what, remedy, selection):
    said = attempt(models=spoilt(factor), dev=None, selection=selection)
    assert said.startswith("cycle 1, bi-encoder of spoilt gave ")
    assert what in said
    assert remedy in said


def test_a_collapsed_start_is_noticed_on_the_dev_set(attempt, spoilt):
    assert "start of spoilt: test set dev: all 48 scores are 0" in attempt(models=spoilt(0.0))


def test_pairs_that_are_all_alike_are_noticed(attempt):
    said = attempt(pairs=PairSet.from_lists(["the old farmer"] * 8, ["the old farmer"] * 8))
    assert said == "all 8 pairs have the same two texts; give pairs that differ"


@pytest.mark.parametrize("gold", [[1.0] * 48, [0.0] * 48])
def test_a_dev_set_of_one_value_is_refused(attempt, dev, gold):
    said = attempt(dev=dev.with_scores(gold))
    assert f"the 48 gold scores of dev are all {gold[0]}; at least two must differ" in said


@pytest.mark.parametrize("empty", ["", " ", "\u3000\n", "\0"])
def test_an_empty_text_is_refused(empty):
    with pytest.raises(DataError, match=r"1 of 2 lines cannot be used:\s+table:2: sentence1 (is empty|holds a NUL)"):
        PairSet.from_lists(["a", empty], ["b", "c"])


def test_a_text_longer_than_the_model_takes_is_cut(bert, roberta):
    long = PairSet.from_lists(["the old farmer sells a boat " * 500, "a boat"], ["a lamp " * 5000, "a lamp"])
    for encoder in (BiEncoder.load(bert, max_tokens=80), CrossEncoder.load(roberta, max_tokens=78)):
        assert np.isfinite(encoder.score(long)).all()


@pytest.mark.parametrize(("family", "limit"), [("bert", 80), ("roberta", 78), ("mpnet", 78), ("distilbert", 80)])
def test_a_limit_beyond_the_model_is_refused_with_the_model_s_own(tiny_model, family, limit):
    model = tiny_model(family)
    for load in (BiEncoder.load, CrossEncoder.load):
        load(model, max_tokens=limit)
        with pytest.raises(ConfigurationError, match=rf"takes at most {limit} tokens, but max_tokens is {limit + 1}"):
            load(model, max_tokens=limit + 1)


def test_texts_of_unknown_tokens_are_refused(attempt, pairs):
    strange = PairSet.from_lists(["你好 " * (i % 5 + 1) for i in range(24)], ["世界 " * (i % 7 + 1) for i in range(24)])
    said = attempt(pairs=strange)
    assert said.startswith("cycle 1, labels of the bi-encoders: 100% of the texts' tokens are unknown to bert-32")
    assert "multilingual" in said
    assert attempt(pairs=pairs, dev=strange.with_scores(np.arange(24.0))).startswith("start of bert-32: 100% of the")


def test_one_pair_is_too_few_to_learn_from_but_enough_to_score(attempt, bert, pairs):
    one = pairs.take([0])
    assert attempt(pairs=one) == "got 1 pairs; a run needs at least 2, and some thousands to be of use"
    encoder = BiEncoder.load(bert, max_tokens=32)
    assert label(one, [encoder]).scores == pytest.approx(encoder.score(one))
    assert "give more pairs, a dev set, or selection=last" in attempt(pairs=pairs.take([0, 1]), dev=None)


def test_weights_are_finite_after_a_whole_run(mutual):
    files = list(mutual.rglob("model.safetensors"))
    assert len(files) == 12  # two members, two kinds, two cycles and best/
    for weights in files:
        assert all(torch.isfinite(weight).all() for weight in load_file(weights).values())
