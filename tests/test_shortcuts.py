"""Shortcuts through a model give what the whole way gives."""

import copy

import pytest
import sentence_transformers
import torch

from conftest import FAMILIES
from trans_encoder.encoders import CrossEncoder
from trans_encoder.encoders.shortcuts import read_first_token_only

SHORTENED = {"bert", "roberta", "electra"}


def gradients(model):
    return {name: weight.grad for name, weight in model.named_parameters()}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_layer_computes_only_what_is_read(family, tiny_model, dev):
    encoder = CrossEncoder.load(tiny_model(family), max_tokens=48)
    whole = sentence_transformers.CrossEncoder(str(tiny_model(family)), num_labels=1, device="cpu")
    whole.load_state_dict(encoder.model.state_dict())
    assert read_first_token_only(copy.deepcopy(whole)) == (family in SHORTENED)

    features = encoder.collate(encoder.tokeniser(dev, max_tokens=48), torch.arange(12).numpy())["inputs"][0]
    encoder.model.eval(), whole.eval()
    outputs = [model({**features})["scores"] for model in (encoder.model, whole)]
    torch.testing.assert_close(*outputs, atol=1e-6, rtol=1e-5)
    for output in outputs:
        output.square().sum().backward()
    plain = gradients(whole)
    for name, gradient in gradients(encoder.model).items():
        if plain[name] is not None:
            # A key's bias adds the same to all scores of a query: its gradient, if any, is nothing but rounding.
            gradient = torch.zeros_like(plain[name]) if gradient is None and "key.bias" in name else gradient
            torch.testing.assert_close(gradient, plain[name], atol=1e-6, rtol=1e-4, msg=name)


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
    assert not read_first_token_only(model)
