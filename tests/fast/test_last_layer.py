"""The last layer for the first token only gives what the whole layer gives."""

import numpy as np
import pytest
import sentence_transformers
import torch

from conftest import FAMILIES
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.loading import set_dropout
from trans_encoder.fast.last_layer import _read, can_skip_tokens, first_token_only
from trans_encoder.fast.packing import active

SHORTENED = {"bert", "roberta", "electra"}


@pytest.fixture(params=["cross", "bi"])
def load(request):
    """Load an encoder that reads the first token only: a cross-encoder, or a bi-encoder with that pooling."""
    if request.param == "cross":
        return lambda name: CrossEncoder.load(name, max_tokens=48)
    return lambda name: BiEncoder.load(name, max_tokens=48, pooling="cls")


@pytest.fixture(autouse=True)
def active_pass():
    token = active.set(True)
    yield
    active.reset(token)


def outputs(model, features):
    found = model({**features})
    return found["scores"] if "scores" in found else found["sentence_embedding"]


def features_of(encoder, pairs):
    first, second = pairs.sentence1.to_pylist()[:12], pairs.sentence2.to_pylist()[:12]
    features = encoder.model.preprocess(first if encoder.kind == "bi" else list(zip(first, second, strict=True)))
    assert not features["attention_mask"].all()
    return {name: features[name] for name in encoder.model.tokenizer.model_input_names if name in features}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_layer_computes_only_what_is_read(family, load, tiny_model, uneven):
    encoder = load(tiny_model(family))
    assert can_skip_tokens(encoder.model) == (family in SHORTENED)
    if family not in SHORTENED:
        return
    features = features_of(encoder, uneven)
    encoder.model.eval()

    def learnt():
        encoder.model.zero_grad()
        found = outputs(encoder.model, features)
        (found * torch.linspace(-1, 1, found.numel()).view_as(found)).sum().backward()
        # A key's bias adds the same to all scores of a query: its gradient, if any, is nothing but rounding.
        weights = encoder.model.named_parameters()
        return found.detach(), {
            name: weight.grad for name, weight in weights if weight.grad is not None and "key.bias" not in name
        }

    plain, gradients = learnt()
    with first_token_only(encoder.model):
        short, shortened = learnt()
    torch.testing.assert_close(short, plain, atol=1e-6, rtol=1e-5)
    assert gradients.keys() == shortened.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(shortened[name], gradient, atol=1e-6, rtol=1e-4, msg=name)


def test_what_attention_drops_is_dropped_with_its_share_of_the_bias(load, bert, uneven):
    encoder = load(bert)
    set_dropout(encoder.model, 0.0)
    last = [module for name, module in encoder.model.named_modules() if name.endswith("layer.1.attention.self")]
    last[0].dropout.p = 1.0
    last[0].value.bias.data.fill_(0.5)
    encoder.model.train()
    features = features_of(encoder, uneven)
    plain = outputs(encoder.model, features)
    with first_token_only(encoder.model):
        torch.testing.assert_close(outputs(encoder.model, features), plain, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_read_is_read_in_full_precision(dtype, load, bert, uneven):
    encoder = load(bert)
    encoder.model.eval()
    features = features_of(encoder, uneven)
    # What is the same for all tokens is large: attention must not drown in it.
    for name, module in encoder.model.named_modules():
        if name.endswith("layer.1.attention.self"):
            module.query.bias.data.fill_(30.0)
    with torch.inference_mode():
        plain = outputs(encoder.model, features)
        with torch.autocast("cpu", dtype=dtype), first_token_only(encoder.model):
            half = outputs(encoder.model, features)
    torch.testing.assert_close(half.float(), plain, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("additive", [False, True])
def test_a_mask_may_be_of_either_kind(additive, bert):
    attention = CrossEncoder.load(bert).model[0].model.bert.encoder.layer[-1].attention.self.eval()
    hidden = torch.randn(2, 5, 32)
    mask = torch.tensor([[[True] * 3 + [False] * 2]]).expand(2, 1, 5)
    given = torch.zeros(2, 1, 5).masked_fill(~mask, torch.finfo(torch.float32).min) if additive else mask
    short = _read(attention, hidden[:, :1], hidden[:, :3], None)
    torch.testing.assert_close(_read(attention, hidden[:, :1], hidden, given), short)


def test_another_pooling_reads_what_it_needs(bert, uneven):
    encoder, mean = (BiEncoder.load(bert, max_tokens=48, pooling=pooling) for pooling in ("cls", "mean"))
    encoder.model[1].pooling_mode = "mean"
    np.testing.assert_allclose(encoder.score(uneven), mean.score(uneven), atol=1e-6)


def test_only_the_first_token_leaves_the_last_layer(bert, uneven):
    encoder = BiEncoder.load(bert, max_tokens=48, pooling="cls")
    features = features_of(encoder, uneven)
    with first_token_only(encoder.model):
        assert encoder.model({**features})["token_embeddings"].shape[1] == 1
    assert encoder.model({**features})["token_embeddings"].shape[:2] == features["input_ids"].shape


def test_a_mean_reads_every_token(bert):
    assert not can_skip_tokens(BiEncoder.load(bert, pooling="mean").model)


def test_a_cross_encoder_with_a_pooling_of_its_own_reads_every_token(bert, dev):
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    def modular():
        torch.manual_seed(0)
        head = Dense(
            32, 1, activation_function=None, module_input_name="sentence_embedding", module_output_name="scores"
        )
        modules = [Transformer(str(bert)), Pooling(32, pooling_mode="mean"), head]
        return sentence_transformers.CrossEncoder(modules=modules, device="cpu", num_labels=1)

    encoder = CrossEncoder(modular(), name="modular")
    texts = list(zip(dev.sentence1.to_pylist(), dev.sentence2.to_pylist(), strict=True))
    torch.testing.assert_close(
        torch.from_numpy(encoder.score(dev)), torch.from_numpy(modular().predict(texts)), atol=1e-5, rtol=1e-5
    )


def test_a_layer_with_a_norm_before_its_attention_is_not_like_berts(bert):
    model = sentence_transformers.CrossEncoder(str(bert), num_labels=1, device="cpu")
    model[0].model.bert.encoder.layer[-1].attention.LayerNorm = torch.nn.LayerNorm(32)
    assert not can_skip_tokens(model)
