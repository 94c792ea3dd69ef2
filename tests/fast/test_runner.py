"""One door: the plain and the fast runner give the same; outside of their blocks a model is transformers' own."""

import logging
from functools import partial

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from conftest import FAMILIES
from small_trainings import assert_alike, learnt, trained, vocabulary
from trans_encoder.config import make_config
from trans_encoder.distill.team import assemble
from trans_encoder.encoders import BiEncoder, CrossEncoder, load_encoder
from trans_encoder.encoders.loading import set_dropout
from trans_encoder.fast import packing, runner
from trans_encoder.fast.last_layer import can_skip_tokens
from trans_encoder.fast.packing import packable
from trans_encoder.fast.runner import FastRunner
from trans_encoder.runner import PlainRunner

PACKED = {"bert", "roberta", "electra"}
ENCODERS = (BiEncoder, CrossEncoder)
LOADERS = [BiEncoder.load, partial(BiEncoder.load, pooling="cls"), CrossEncoder.load]


@pytest.fixture(autouse=True)
def fresh_warnings():
    runner._warn.cache_clear()


def test_fast_is_switched_off_by_one_word(bert, monkeypatch):
    def chosen(**given):
        return type(load_encoder(bert, kind="bi", **given).runner)

    assert chosen() is FastRunner
    assert chosen(fast=False) is PlainRunner
    monkeypatch.setenv("TRANS_ENCODER_FAST", "0")
    assert chosen() is PlainRunner
    assert chosen(fast=True) is FastRunner


def test_a_runs_setting_reaches_its_models_and_is_no_part_of_its_identity(bert):
    plain, fast = (make_config([str(bert)], overrides={"fast": value}) for value in (False, True))
    for config, kind in ((plain, PlainRunner), (fast, FastRunner)):
        (member,) = assemble(config)
        assert type(member.start.load().runner) is kind
        assert type(member.plm.load().runner) is kind
    assert plain.model_dump() == fast.model_dump()


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_both_runners_give_the_same_scores_and_gradients(load, family, tiny_model, uneven, no_pass_is_too_small):
    fast, plain = (load(tiny_model(family), max_tokens=32, fast=fast) for fast in (True, False))
    assert packable(fast.model) == (family in PACKED)
    np.testing.assert_allclose(fast.score(uneven), plain.score(uneven), atol=1e-5)
    for encoder in (fast, plain):
        set_dropout(encoder.model, 0.0)
        encoder.model.train()
    with fast.runner.training(vocabulary(fast), seed=0, distributed=False):
        found = learnt(fast, uneven)
    expected = learnt(plain, uneven)
    # The first token's attention needs no bias of the last layer's keys; a bi-encoder's own pooler is not used.
    assert_alike(found, {name: value for name, value in expected.items() if name in found})
    assert len(found) > len(expected) - 3


@pytest.mark.parametrize("distributed", [False, True])
def test_one_of_several_processes_packs_too(distributed, bert, uneven, monkeypatch):
    seen = []
    attend = packing._attend
    monkeypatch.setattr(packing, "_attend", lambda *given: seen.append(given[-1]) or attend(*given))
    encoder = BiEncoder.load(bert, max_tokens=32)
    with encoder.runner.training(vocabulary(encoder), seed=0, distributed=distributed) as session:
        learnt(encoder, uneven)
        assert (session.clip([], 1.0) is None) == distributed
    assert seen


@pytest.mark.parametrize("kind", ENCODERS)
def test_layers_that_are_computed_again_for_their_gradients_go_the_plain_way(kind, bert, uneven):
    encoder = kind.load(bert, max_tokens=32)
    set_dropout(encoder.model, 0.0)
    encoder.model.train()
    once = learnt(encoder, uneven)
    encoder.model[0].model.gradient_checkpointing_enable()
    with encoder.runner.training(vocabulary(encoder), seed=0, distributed=False):
        assert_alike(learnt(encoder, uneven), once)


def forwards(model):
    """Return every forward of a model that is not its class's own."""
    return {name for name, module in model.named_modules() if "forward" in vars(module)}


@pytest.mark.parametrize("load", LOADERS)
def test_outside_of_scoring_and_training_a_model_is_transformers_own(load, bert, dev, tmp_path):
    encoder = load(bert, max_tokens=32)
    assert not forwards(encoder.model)
    assert packable(encoder.model)
    can_skip_tokens(encoder.model)
    assert not forwards(encoder.model)
    encoder.score(dev)
    assert not forwards(encoder.model)
    with encoder.runner.training(vocabulary(encoder), seed=0, distributed=False):
        assert forwards(encoder.model)
        encoder.score(dev)
        assert forwards(encoder.model)
    assert not forwards(encoder.model)
    scores = encoder.runner.predict(iter([0]), lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(scores)
    assert not forwards(encoder.model)


def test_who_asks_the_model_itself_in_a_training_gets_every_token(bert):
    encoder = BiEncoder.load(bert, max_tokens=32, pooling="cls")
    features = {
        "input_ids": torch.tensor([[2, 7, 3, 0], [2, 8, 9, 3]]),
        "attention_mask": torch.tensor([[1, 1, 1, 0], [1] * 4]),
    }
    encoder.model.eval()
    plain = encoder.model(dict(features))["token_embeddings"]
    with encoder.runner.training(vocabulary(encoder), seed=0, distributed=False):
        encoder.model.eval()
        assert torch.equal(encoder.model(dict(features))["token_embeddings"], plain)


class Adapter(nn.Module):
    """A linear layer with a low-rank update, as LoRA has it."""

    def __init__(self, linear):
        super().__init__()
        self.linear, self.down, self.up = linear, nn.Linear(32, 2), nn.Linear(2, linear.out_features)

    def forward(self, rows):
        return self.linear(rows) + 3 * self.up(self.down(rows))


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_adapter_that_is_added_after_loading_is_used_and_trained(kind, bert, dev, tmp_path):
    adapted = []

    def adapt(encoder):
        torch.manual_seed(0)
        attention = next(module for module in encoder.model.modules() if hasattr(module, "query"))
        attention.value = Adapter(attention.value)
        adapted.append(attention.value)

    fast, plain = (kind.load(bert, max_tokens=32, fast=fast) for fast in (True, False))
    without = fast.score(dev)
    adapt(fast)
    adapt(plain)
    assert np.abs(fast.score(dev) - without).max() > 1e-4
    np.testing.assert_allclose(fast.score(dev), plain.score(dev), atol=1e-6)
    before = adapted[0].up.weight.clone()
    weights = trained(bert, dev, tmp_path, kind=kind, prepare=adapt)
    assert not torch.equal(next(value for name, value in weights.items() if name.endswith("up.weight")), before)


def test_a_hook_that_is_added_after_loading_sees_what_transformers_gives_it(bert, dev):
    encoder, shapes = BiEncoder.load(bert, max_tokens=32), []
    encoder.score(dev)
    layer = encoder.model[0].model.encoder.layer[0]
    with layer.attention.self.query.register_forward_hook(lambda _, given, __: shapes.append(given[0].shape)):
        encoder.score(dev)
    assert shapes
    assert all(shape[0] > 1 for shape in shapes)  # one row for each input, not all in one


def broken(monkeypatch):
    """Break the fast way as another version of transformers might."""
    attend = packing._attend
    monkeypatch.setattr(packing, "_attend", lambda *given: attend(*given).roll(1, dims=0) + 1)


@pytest.mark.parametrize("kind", ENCODERS)
def test_where_the_ways_differ_the_plain_one_scores_with_one_warning(kind, bert, dev, monkeypatch, caplog):
    expected = kind.load(bert, max_tokens=32, fast=False).score(dev)
    broken(monkeypatch)
    encoder = kind.load(bert, max_tokens=32)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            np.testing.assert_allclose(encoder.score(dev), expected, atol=1e-6)
    (warning,) = (message for message in caplog.messages if "fast forward pass" in message)
    assert torch.__version__ in warning
    assert transformers.__version__ in warning
    assert not forwards(encoder.model)


def test_where_the_ways_differ_a_training_goes_the_plain_way_with_one_warning(bert, dev, monkeypatch, caplog, tmp_path):
    plain = trained(bert, dev, tmp_path / "plain", fast=False, dropout=0.0)
    broken(monkeypatch)
    with caplog.at_level(logging.WARNING):
        judged = {"judge": lambda student: float(student.score(dev).mean()), "keep_last": True}
        weights = trained(bert, dev, tmp_path / "broken", dropout=0.0, **judged)
    assert sum("fast forward pass" in message for message in caplog.messages) == 1
    # The mean, because AdamW makes a gradient that is nothing but rounding as large as any.
    moved = [(weights[name] - weight).abs().mean() for name, weight in plain.items() if "key.bias" not in name]
    assert max(moved) < 3e-5


def test_padding_on_the_left_is_left_as_it_is(bert):
    encoder = BiEncoder.load(bert, max_tokens=32)
    encoder.model.eval()
    features = {
        "input_ids": torch.tensor([[0, 2, 7, 3], [2, 8, 9, 3]]),
        "attention_mask": torch.tensor([[0, 1, 1, 1], [1] * 4]),
    }
    with encoder.runner.patched(), torch.no_grad():
        plain = encoder.runner.forward(encoder.model, features)
        assert torch.equal(encoder.runner.fast_forward(encoder.model, features), plain)


def test_nothing_scores_to_nothing(bert):
    assert len(BiEncoder.load(bert).encode([])) == 0
