"""Dropout draws from the stream of its pass, whatever kind of model asks for it; what cannot is found by experiment."""

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional

from conftest import save_model
from small_trainings import same, trained, vocabulary
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.loading import set_dropout
from trans_encoder.fast.randomness import Stream, draws


def drawn(run, *key):
    with Stream(*key):
        return run()


@pytest.mark.parametrize(
    "run",
    [
        lambda: functional.dropout(torch.ones(4000), 0.3),
        lambda: nn.Dropout(0.3)(torch.ones(4000)),
        lambda: functional.dropout(torch.ones(4000), p=0.3, training=True, inplace=True),
        lambda: torch.rand(4000),
        lambda: torch.ones(4000).bernoulli_(0.7),
        lambda: functional.scaled_dot_product_attention(*torch.ones(3, 1, 2, 50, 40), dropout_p=0.3),
    ],
)
def test_a_stream_is_decided_by_its_key_alone(run):
    first = drawn(run, 1, 2, 3)
    torch.manual_seed(99)
    assert torch.equal(first, drawn(run, 1, 2, 3))
    assert not torch.equal(first, drawn(run, 1, 2, 4))
    assert draws(run)
    assert not draws(lambda: drawn(run, 0))


def test_dropout_keeps_its_share_and_the_mean():
    dropped = drawn(lambda: functional.dropout(torch.ones(100_000), 0.3), 0)
    assert float((dropped == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.02)
    assert torch.equal(drawn(lambda: functional.dropout(torch.ones(9), 0.3, training=False), 0), torch.ones(9))
    assert torch.equal(drawn(lambda: functional.dropout(torch.ones(9), 1.0), 0), torch.zeros(9))


@pytest.mark.parametrize("kind", [None, torch.bool, torch.float32])
def test_attention_without_dropout_is_torchs_own_and_with_little_dropout_near_it(kind):
    query, key, value = torch.randn(3, 2, 4, 6, 8)
    mask = None if kind is None else torch.ones(2, 1, 6, 6, dtype=torch.bool).tril()
    if kind is torch.float32:
        mask = torch.zeros(2, 1, 6, 6).masked_fill(~mask, -torch.inf)
    plain = functional.scaled_dot_product_attention(query, key, value, mask)
    near = drawn(lambda: functional.scaled_dot_product_attention(query, key, value, mask, dropout_p=1e-9), 0)
    torch.testing.assert_close(near, plain, atol=1e-6, rtol=1e-5)


def test_the_experiment_leaves_the_global_generators_as_they_were():
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    draws(lambda: torch.rand(3) + np.random.random())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()


SHAPES = {
    "t5": lambda size: transformers.T5Config(
        vocab_size=size, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, pad_token_id=0
    ),
    "albert": lambda size: transformers.AlbertConfig(
        vocab_size=size,
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        attention_probs_dropout_prob=0.1,
        hidden_dropout_prob=0.1,
    ),
    "longformer": lambda size: transformers.LongformerConfig(
        vocab_size=size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=80,
        attention_window=8,
        pad_token_id=0,
    ),
    "xlm": lambda size: transformers.XLMConfig(
        vocab_size=size, emb_dim=32, n_layers=2, n_heads=2, max_position_embeddings=80, pad_index=0, pad_token_id=0
    ),
    "bart": lambda size: transformers.BartConfig(
        vocab_size=size,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=80,
        dropout=0.1,
        attention_dropout=0.1,
        pad_token_id=0,
    ),
}


@pytest.fixture(scope="module")
def odd_model(tiny_model, tmp_path_factory):
    """Build models that keep their dropout in other ways than BERT."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model("bert"))

    def build(family):
        folder = tmp_path_factory.mktemp(family)
        config = SHAPES[family](len(tokenizer))
        if family == "t5":
            with torch.random.fork_rng():
                torch.manual_seed(0)
                transformers.T5EncoderModel(config).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        else:
            save_model(folder, config, tokenizer)
        return folder

    return build


@pytest.mark.parametrize("family", SHAPES)
def test_rates_that_are_plain_numbers_are_set_too(family, odd_model, dev):
    encoder = BiEncoder.load(odd_model(family), max_tokens=32)
    encoder.model.train()
    inputs = encoder.collate(encoder.tokeniser(dev, max_tokens=32), np.arange(8))["inputs"]

    def run():
        with torch.no_grad():
            return encoder.runner(inputs)

    assert draws(run)
    set_dropout(encoder.model, 0.0)
    assert not draws(run)


@pytest.mark.parametrize("family", SHAPES)
def test_any_family_trains_to_the_same_bytes_with_one_and_two_threads(family, odd_model, dev, cores, tmp_path):
    model = odd_model(family)
    two = trained(model, dev, tmp_path / "two")
    torch.set_num_threads(1)
    assert same(two, trained(model, dev, tmp_path / "one"))


def test_a_model_that_draws_otherwise_takes_turns_and_is_still_deterministic(tiny_model, dev, cores, tmp_path):
    class TorchNoise(nn.Module):
        def forward(self, tokens):
            return torch.ops.aten.add(tokens, torch.ops.aten.rand_like.default(tokens)) if self.training else tokens

    def disturb(encoder):
        body = encoder.model[0].model
        body.embeddings.LayerNorm = nn.Sequential(body.embeddings.LayerNorm, TorchNoise())

    encoder = BiEncoder.load(tiny_model("bert"), max_tokens=32)
    disturb(encoder)
    with encoder.runner.training(vocabulary(encoder), seed=0, distributed=False) as session:
        encoder.model.train()
        encoder.outputs(encoder.collate(encoder.tokeniser(dev, max_tokens=32), np.arange(8)))
        assert session._lanes.in_order
    first, second = (trained(tiny_model("bert"), dev, tmp_path / name, prepare=disturb) for name in ("a", "b"))
    assert same(first, second)
