"""Trainings in lanes and scoring in threads give what one pass after another gives, and always the same bits."""

from threading import current_thread, main_thread

import numpy as np
import pytest
import torch

from small_trainings import assert_alike, learnt, same, trained, vocabulary
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.loading import set_dropout
from trans_encoder.fast import runner, threads

ENCODERS = (BiEncoder, CrossEncoder)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_lanes_give_what_one_pass_gives_and_the_same_bits_with_any_number_of_threads(
    kind, family, tiny_model, uneven, cores, no_pass_is_too_small
):
    encoder = kind.load(tiny_model(family), max_tokens=32)
    set_dropout(encoder.model, 0.0)
    encoder.model.train()
    one, one_row = learnt(encoder, uneven), learnt(encoder, uneven, rows=1)
    several = []
    for count in (1, 2, 3, 4):
        torch.set_num_threads(count)
        with encoder.runner.training(vocabulary(encoder), seed=0, distributed=False):
            assert len(encoder.collate(encoder.tokeniser(uneven, max_tokens=32), np.arange(16))["inputs"]) > 2
            several.append(learnt(encoder, uneven))
            assert_alike(learnt(encoder, uneven, rows=1), one_row)  # fewer inputs than lanes
        assert torch.get_num_threads() == count
    assert_alike(several[0], one)
    for again in several[1:]:
        assert all(torch.equal(again[name], several[0][name]) for name in again)


def test_a_packed_batch_is_split_by_tokens_and_equal_lengths_stay_together():
    lengths = np.random.default_rng(0).integers(2, 50, size=64)
    groups = threads.split_packed(lengths)
    order = np.concatenate(groups)
    assert sorted(order) == list(range(len(lengths)))
    assert (np.diff(lengths[order]) <= 0).all()
    sizes = [int(lengths[group].sum()) for group in groups]
    assert len(groups) == threads.LANES
    assert max(sizes) - min(sizes) <= lengths.max()


@pytest.mark.parametrize("kind", ENCODERS)
def test_scores_are_the_same_bits_with_threads(kind, bert, pairs, cores, monkeypatch):
    monkeypatch.setattr("trans_encoder.encoders.loading.BATCH_TOKENS", {"cpu": 64})
    encoder = kind.load(bert, max_tokens=32)
    several = encoder.score(pairs)
    torch.set_num_threads(1)
    assert np.array_equal(several, encoder.score(pairs))


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_training_is_the_same_bytes_with_one_and_two_threads(dropout, kind, bert, dev, cores, tmp_path):
    settings = {"kind": kind, "dropout": dropout}
    two, again = (trained(bert, dev, tmp_path / name, **settings) for name in ("two", "again"))
    torch.set_num_threads(1)
    assert same(two, again)
    assert same(two, trained(bert, dev, tmp_path / "one", **settings))
    other = trained(bert, dev, tmp_path / "other", seed=1, **settings)
    assert not same(two, other)


@pytest.mark.parametrize("fast", [True, False])
def test_a_killed_training_with_dropout_continues_to_the_same_weights(fast, bert, dev, cores, tmp_path):
    def judge(student):
        return float(student.score(dev).mean())

    def killing(student, calls=[]):  # noqa: B006
        calls.append(1)
        if len(calls) % 2 == 0:
            raise KeyboardInterrupt
        return judge(student)

    whole = trained(bert, dev, tmp_path / "whole", judge=judge, fast=fast)
    with pytest.raises(KeyboardInterrupt):
        trained(bert, dev, tmp_path / "killed", judge=killing, fast=fast)
    assert list((tmp_path / "killed").glob("checkpoint-*"))
    if fast:
        torch.set_num_threads(1)  # continued on a machine with fewer cores
    assert same(whole, trained(bert, dev, tmp_path / "killed", judge=judge, fast=fast))


def test_what_is_dropped_is_as_much_as_asked_for(bert, dev, tmp_path):
    weights = {rate: trained(bert, dev, tmp_path / str(rate), dropout=rate) for rate in (0.0, 1e-6, 0.5)}
    distance = {
        rate: max(float((weights[rate][name] - weight).abs().max()) for name, weight in weights[0.0].items())
        for rate in (1e-6, 0.5)
    }
    assert distance[1e-6] < 1e-4 < 1e-3 < distance[0.5]


@pytest.mark.parametrize("fast", [True, False])
def test_frozen_word_embeddings_stay_and_the_rest_learns(fast, bert, dev, tmp_path):
    def freeze(encoder):
        encoder.model[0].model.get_input_embeddings().requires_grad_(False)

    before = BiEncoder.load(bert).model.state_dict()
    after = trained(bert, dev, tmp_path, prepare=freeze, fast=fast)
    moved = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
    assert not any("word_embeddings" in name for name in moved)
    assert any("layer.0" in name for name in moved)


def test_a_judge_has_all_cores_of_the_training_that_it_interrupts(bert, dev, cores, tmp_path):
    seen = []

    def judge(student):
        with student.model.register_forward_pre_hook(lambda *_: seen.append(current_thread())):
            student.score(dev)
        return 0.0

    trained(bert, dev, tmp_path, judge=judge)
    assert seen
    assert main_thread() not in seen
    assert torch.get_num_threads() == 2


def test_a_judge_that_asks_the_model_itself_gets_what_was_learnt(bert, dev, tmp_path):
    seen = []

    def judge(student):
        direct = student.model.encode(dev.sentence1.to_pylist(), show_progress_bar=False)
        seen.append(np.abs(direct - student.encode(dev.sentence1)).max())
        return 0.0

    trained(bert, dev, tmp_path, judge=judge)
    assert seen
    assert max(seen) < 1e-5


def test_half_precision_reaches_the_threads(bert, dev, cores, tmp_path):
    seen = []

    def watch(encoder):
        inner = encoder.model[0]
        inner.register_forward_pre_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))

    trained(bert, dev.sample(32, seed=0), tmp_path, prepare=watch, precision="bf16")
    assert seen
    assert all(seen)


def test_an_error_in_a_thread_ends_the_training_and_gives_the_cores_back(bert, dev, cores, monkeypatch):
    encoder = BiEncoder.load(bert, max_tokens=32)
    set_dropout(encoder.model, 0.0)
    forward = type(encoder.model[0].model.encoder.layer[0]).forward
    monkeypatch.setattr(runner.ThreadedTraining, "_pass", lambda *_: 1 / 0)
    with (
        pytest.raises(ZeroDivisionError),
        encoder.runner.training(vocabulary(encoder), seed=0, distributed=False),
    ):
        learnt(encoder, dev)
    assert torch.get_num_threads() == 2
    layer = encoder.model[0].model.encoder.layer[0]
    assert layer.forward.__func__ is forward
