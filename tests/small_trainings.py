"""Trainings of a few steps, and what one batch teaches."""

import numpy as np
import torch

from trans_encoder.config import TrainingPlan
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.training import TrainingOptions, train

_LEFT_OUT = ("key.bias", "word_embeddings", "tok_embeddings")
"""A key's bias adds the same to all scores of a query, so its gradient is nothing but rounding; embeddings have a test
of their own."""


def vocabulary(encoder):
    return np.arange(len(encoder.model.tokenizer))


def learnt(encoder, pairs, *, rows=16):
    """Return an encoder's scores of some pairs, and their gradients."""
    encoder.model.zero_grad()
    batch = encoder.collate(encoder.tokeniser(pairs, max_tokens=32), np.arange(rows))
    outputs = encoder.outputs(batch)
    (outputs * torch.linspace(-1, 1, rows)).sum().backward()
    weights = encoder.model.named_parameters()
    found = {
        name: weight.grad.to_dense().clone()
        for name, weight in weights
        if weight.grad is not None and not any(part in name for part in _LEFT_OUT)
    }
    assert len(found) > 10
    return {"outputs": outputs.detach(), **found}


def assert_alike(found, expected):
    assert set(found) == set(expected)
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], atol=3e-5, rtol=1e-4, msg=name)


def plan(**settings):
    common = {"loss": "mse", "batch_size": 16, "epochs": 1, "learning_rate": 1e-3, "max_tokens": 32, "dev_steps": 2}
    return TrainingPlan(**{**common, "checkpoint_steps": 1, "dropout": 0.1, **settings})


def trained(name, dev, folder, *, kind=BiEncoder, prepare=lambda _: None, dropout=0.1, fast=None, **options):
    """Return the weights of an encoder that was trained."""
    encoder = kind.load(name, max_tokens=32, fast=fast)
    prepare(encoder)
    train(encoder, dev, plan=plan(dropout=dropout), options=TrainingOptions(folder=folder, **options))
    return {name: weight.clone() for name, weight in encoder.model.state_dict().items()}


def same(first, second):
    assert first.keys() == second.keys()
    return all(torch.equal(weight, second[name]) for name, weight in first.items())
