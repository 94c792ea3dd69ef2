"""Encoders of every family can be members, and plain sentence-transformers scores as we do."""

import numpy as np
import pytest
import sentence_transformers
import torch

from conftest import FAMILIES
from trans_encoder.config import TrainingPlan
from trans_encoder.encoders import BiEncoder, CrossEncoder, load_encoder
from trans_encoder.encoders.loading import set_dropout
from trans_encoder.encoders.training import TrainingOptions, train

PLANS = {
    "bi": TrainingPlan(loss="mse", batch_size=8, epochs=1, learning_rate=1e-3, max_tokens=32),
    "cross": TrainingPlan(loss="bce", batch_size=8, epochs=1, learning_rate=1e-3, max_tokens=48),
}


@pytest.fixture(params=FAMILIES)
def plm(request, tiny_model):
    return tiny_model(request.param)


def one_step(student, labelled, folder):
    options = TrainingOptions(folder=folder, seed=1)
    return train(student, labelled, plan=PLANS[student.kind], options=options).encoder


def texts(pairs):
    return pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist()


def test_a_bi_encoder_of_every_family(plm, dev, tmp_path):
    student = BiEncoder.load(plm, pooling="mean", max_tokens=32)
    before = student.score(dev)
    trained = one_step(student, dev.take(range(24)), tmp_path / "work")
    after = trained.score(dev)
    assert np.abs(after - before).max() > 1e-4, "a step changed nothing"

    trained.save(tmp_path / "bi")
    plain = sentence_transformers.SentenceTransformer(str(tmp_path / "bi"), device="cpu")
    left, right = (plain.encode(side, convert_to_tensor=True) for side in texts(dev))
    cosines = torch.nn.functional.cosine_similarity(left, right).numpy()
    np.testing.assert_allclose(cosines, after, atol=1e-5)
    reloaded = load_encoder(tmp_path / "bi")
    assert reloaded.kind == "bi"
    np.testing.assert_allclose(reloaded.score(dev), after, atol=1e-6)


def test_a_cross_encoder_of_every_family(plm, dev, tmp_path):
    student = CrossEncoder.load(plm, max_tokens=48, seed=7)
    before = student.score(dev)
    trained = one_step(student, dev.take(range(24)), tmp_path / "work")
    after = trained.score(dev)
    assert np.abs(after - before).max() > 1e-4, "a step changed nothing"

    trained.save(tmp_path / "cross")
    plain = sentence_transformers.CrossEncoder(str(tmp_path / "cross"), device="cpu")
    probabilities = plain.predict(list(zip(*texts(dev), strict=True)))
    np.testing.assert_allclose(probabilities, after, atol=1e-5)
    reloaded = load_encoder(tmp_path / "cross")
    assert reloaded.kind == "cross"
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
