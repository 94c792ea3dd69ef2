"""Encoders of every family can be members, and plain sentence-transformers scores as we do."""

from functools import partial

import numpy as np
import pytest
import sentence_transformers
import torch

from conftest import FAMILIES
from trans_encoder.config import TrainingPlan
from trans_encoder.encoders import BiEncoder, CrossEncoder, load_encoder
from trans_encoder.encoders.loading import set_dropout
from trans_encoder.encoders.training import TrainingOptions, train

pytestmark = pytest.mark.usefixtures("either_runner")
PLANS = {
    "bi": TrainingPlan(loss="mse", batch_size=8, epochs=1, learning_rate=1e-3, max_tokens=32),
    "cross": TrainingPlan(loss="bce", batch_size=8, epochs=1, learning_rate=1e-3, max_tokens=48),
}

LOADERS = {
    "bi": partial(BiEncoder.load, pooling="mean", max_tokens=32),
    "cross": partial(CrossEncoder.load, max_tokens=48, seed=7),
}


@pytest.fixture(params=FAMILIES)
def plm(request, tiny_model):
    return tiny_model(request.param)


def one_step(student, labelled, folder):
    options = TrainingOptions(folder=folder, seed=1)
    return train(student, labelled, plan=PLANS[student.kind], options=options).encoder


def texts(pairs):
    return pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist()


def plain_scores(kind, folder, pairs):
    """Score pairs with sentence-transformers alone."""
    if kind == "cross":
        model = sentence_transformers.CrossEncoder(str(folder), device="cpu")
        return model.predict(list(zip(*texts(pairs), strict=True)))
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    left, right = (model.encode(side, convert_to_tensor=True) for side in texts(pairs))
    return torch.nn.functional.cosine_similarity(left, right).numpy()


@pytest.mark.parametrize("kind", LOADERS)
def test_an_encoder_of_every_family_learns_and_is_saved_for_sentence_transformers(kind, plm, dev, tmp_path):
    student = LOADERS[kind](plm)
    before = student.score(dev)
    trained = one_step(student, dev.take(range(24)), tmp_path / "work")
    after = trained.score(dev)
    assert np.abs(after - before).max() > 1e-4, "a step changed nothing"

    trained.save(tmp_path / kind)
    np.testing.assert_allclose(plain_scores(kind, tmp_path / kind, dev), after, atol=1e-5)
    reloaded = load_encoder(tmp_path / kind)
    assert reloaded.kind == kind
    np.testing.assert_allclose(reloaded.score(dev), after, atol=1e-6)


def test_the_new_head_is_drawn_from_the_seed(plm, dev):
    first, again, other = (CrossEncoder.load(plm, max_tokens=48, seed=seed).score(dev) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-6


def test_dropout_can_be_set(plm, dev):
    student = CrossEncoder.load(plm, max_tokens=48)
    batch = student.collate(student.tokeniser(dev, max_tokens=48), np.arange(12))
    student.model.train()
    set_dropout(student.model, 0.2)
    assert not torch.equal(student.outputs(batch), student.outputs(batch))
    set_dropout(student.model, 0.0)
    assert torch.equal(student.outputs(batch), student.outputs(batch))
