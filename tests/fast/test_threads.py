"""Passes without padding and side by side give what plain passes give."""

from contextlib import nullcontext
from functools import partial
from threading import current_thread, main_thread

import numpy as np
import pytest
import torch

from conftest import FAMILIES
from trans_encoder.config import TrainingPlan
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.loading import set_dropout
from trans_encoder.encoders.training import TrainingOptions, train
from trans_encoder.fast import matmul as products
from trans_encoder.fast import threads as passes
from trans_encoder.fast.packing import packed, packed_runs

PACKED = {"bert", "roberta", "electra"}
ENCODERS = (BiEncoder, CrossEncoder)


@pytest.fixture(autouse=True)
def no_pass_is_too_small(monkeypatch):
    monkeypatch.setattr(products, "_FEWEST_ROWS", 1)


def learnt(encoder, pairs, *, rows=16):
    """Return what an encoder says of some pairs, and the gradients of that."""
    encoder.model.zero_grad()
    batch = encoder.collate(encoder.tokeniser(pairs, max_tokens=32), np.arange(rows))
    outputs = encoder.outputs(batch)
    (outputs * torch.linspace(-1, 1, rows)).sum().backward()
    weights = encoder.model.named_parameters()
    # A key's bias adds the same to all scores of a query, so its gradient is nothing but rounding.
    found = {
        name: weight.grad.clone() for name, weight in weights if weight.grad is not None and "key.bias" not in name
    }
    return {"outputs": outputs.detach(), **found}


def assert_alike(found, expected):
    assert set(found) == set(expected)
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], atol=1e-6, rtol=1e-4, msg=name)


@pytest.mark.parametrize("load", [BiEncoder.load, partial(BiEncoder.load, pooling="cls"), CrossEncoder.load])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_packed_pass_gives_what_a_padded_one_gives(load, family, tiny_model, uneven, monkeypatch):
    encoder = load(tiny_model(family), max_tokens=32)
    encoder.model.eval()
    assert encoder.passes._packed == (family in PACKED)
    found, scores = learnt(encoder, uneven), encoder.score(uneven)
    for way in ("packed", "first_token_only"):
        monkeypatch.setattr(passes, way, nullcontext)
        assert_alike(found, learnt(encoder, uneven))
        np.testing.assert_allclose(scores, encoder.score(uneven), atol=1e-5)


@pytest.mark.parametrize("family", sorted(PACKED))
def test_a_packed_pass_of_the_whole_last_layer_gives_the_same_logits(family, tiny_model, uneven, monkeypatch):
    encoder = CrossEncoder.load(tiny_model(family), max_tokens=32)
    scores = encoder.score(uneven)
    monkeypatch.setattr(passes, "first_token_only", nullcontext)
    np.testing.assert_allclose(scores, encoder.score(uneven), atol=1e-5)


@pytest.mark.parametrize("kind", ENCODERS)
def test_layers_that_are_computed_again_for_their_gradients_go_the_plain_way(kind, bert, uneven):
    encoder = kind.load(bert, max_tokens=32)
    set_dropout(encoder.model, 0.0)
    encoder.model.train()
    once = learnt(encoder, uneven)
    encoder.model[0].model.gradient_checkpointing_enable()
    assert_alike(learnt(encoder, uneven), once)


def test_nothing_is_packed_unless_asked_for_and_nothing_stays_so(bert):
    runs = []
    encoder = BiEncoder.load(bert, max_tokens=32)
    layer = encoder.model[0].model.encoder.layer[0]
    layer.register_forward_hook(lambda *_: runs.append(packed_runs()))
    features = {
        "input_ids": torch.tensor([[2, 7, 3, 0], [2, 8, 9, 3]]),
        "attention_mask": torch.tensor([[1, 1, 1, 0], [1] * 4]),
    }
    encoder.model(dict(features))
    with packed():
        encoder.model(dict(features))
    encoder.model(dict(features))
    filling = [(1, products.rows_to_add(7))] if products.rows_to_add(7) else []
    assert runs == [None, [(1, 3), (1, 4), *filling], None]


def test_padding_on_the_left_is_left_as_it_is(bert):
    encoder = BiEncoder.load(bert, max_tokens=32)
    encoder.model.eval()
    features = {
        "input_ids": torch.tensor([[0, 2, 7, 3], [2, 8, 9, 3]]),
        "attention_mask": torch.tensor([[0, 1, 1, 1], [1] * 4]),
    }
    plain = encoder.model(dict(features))["sentence_embedding"]
    with packed():
        assert torch.equal(encoder.model(dict(features))["sentence_embedding"], plain)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_threads_give_what_one_gives_and_always_the_same_bits(kind, family, tiny_model, uneven, cores):
    encoder = kind.load(tiny_model(family), max_tokens=32)
    set_dropout(encoder.model, 0.0)
    one = learnt(encoder, uneven)
    with encoder.passes.side_by_side():
        assert len(encoder.collate(encoder.tokeniser(uneven, max_tokens=32), np.arange(16))["inputs"]) > 1
        several = [learnt(encoder, uneven) for _ in range(3)]
        last = learnt(encoder, uneven, rows=1)  # fewer inputs than threads
    assert_alike(several[0], one)
    for again in several[1:]:
        assert all(torch.equal(again[name], several[0][name]) for name in again)
    assert_alike(last, learnt(encoder, uneven, rows=1))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_batch_is_dealt_out_evenly(count):
    lengths = np.random.default_rng(0).integers(2, 50, size=64)
    groups = passes._dealt(lengths.tolist(), count)
    assert sorted(np.concatenate(groups)) == list(range(len(lengths)))
    sizes = [int(lengths[group].sum()) for group in groups]
    assert max(sizes) - min(sizes) <= lengths.min() + 1
    assert all(sorted(lengths[group], reverse=True) == lengths[group].tolist() for group in groups)


@pytest.mark.parametrize("kind", ENCODERS)
def test_scores_are_the_same_bits_with_threads(kind, bert, pairs, cores, monkeypatch):
    module = "trans_encoder.encoders.bi" if kind is BiEncoder else "trans_encoder.encoders.cross"
    monkeypatch.setattr(f"{module}._BATCH_TOKENS", {"cpu": 64})
    encoder = kind.load(bert, max_tokens=32)
    several = encoder.score(pairs)
    monkeypatch.setattr(passes, "_MOST", 1)
    torch.set_num_threads(1)
    assert np.array_equal(several, encoder.score(pairs))


def test_dropout_is_never_drawn_by_several_threads(bert, dev, cores):
    encoder = BiEncoder.load(bert, max_tokens=32)
    for rate, threads in ((0.1, 1), (0.0, 2)):
        set_dropout(encoder.model, rate)
        with encoder.passes.side_by_side():
            assert len(encoder.passes._replicas) == threads


PLAN = TrainingPlan(
    loss="mse", batch_size=16, epochs=1, learning_rate=1e-3, max_tokens=32, dropout=0.0, dev_steps=2, checkpoint_steps=1
)


def trained(bert, dev, folder, **options):
    """Return the weights of a bi-encoder that was trained."""
    encoder = BiEncoder.load(bert, max_tokens=32)
    train(encoder, dev, plan=PLAN, options=TrainingOptions(folder=folder, **options))
    return {name: weight.clone() for name, weight in encoder.model.state_dict().items()}


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


def test_half_precision_is_not_left_to_threads_that_do_not_know_of_it(bert, dev, cores, tmp_path):
    seen = []

    def judge(student):
        seen.append((student.passes._pool, torch.get_num_threads()))
        return 0.0

    trained(bert, dev.sample(32, seed=0), tmp_path, judge=judge, precision="bf16")
    assert set(seen) == {(None, 2)}


def test_a_training_with_threads_is_that_of_one_and_the_same_each_time(bert, dev, cores, tmp_path):
    first, second = (trained(bert, dev, tmp_path / name) for name in ("first", "second"))
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    alone = trained(bert, dev, tmp_path / "alone")
    for name, weight in first.items():
        if "key.bias" not in name:  # its gradient is rounding, which AdamW makes as large as any
            torch.testing.assert_close(weight, alone[name], atol=1e-4, rtol=1e-3, msg=name)


def test_a_killed_training_with_threads_continues_to_the_same_weights(bert, dev, cores, tmp_path):
    def judge(student):
        return float(student.score(dev).mean())

    def killing(student, calls=[]):  # noqa: B006
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return judge(student)

    whole = trained(bert, dev, tmp_path / "whole", judge=judge)
    with pytest.raises(KeyboardInterrupt):
        trained(bert, dev, tmp_path / "killed", judge=killing)
    assert list((tmp_path / "killed").glob("checkpoint-*"))
    continued = trained(bert, dev, tmp_path / "killed", judge=judge)
    assert all(torch.equal(weight, continued[name]) for name, weight in whole.items())


def test_an_error_in_a_thread_ends_the_training_and_gives_the_cores_back(bert, dev, cores, monkeypatch):
    encoder = BiEncoder.load(bert, max_tokens=32)
    set_dropout(encoder.model, 0.0)
    monkeypatch.setattr(encoder.passes, "_pass", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError), encoder.passes.side_by_side():
        learnt(encoder, dev)
    assert encoder.passes._pool is None
    assert torch.get_num_threads() == 2
