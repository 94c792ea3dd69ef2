"""Evaluation: single models, ensembles, models trained elsewhere, and the paper's way of averaging."""

import numpy as np
import pytest
import sentence_transformers
import torch
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from conftest import graded
from trans_encoder.data.tasks import Task, TestSet
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.evaluation.ensembles import ensemble_scores
from trans_encoder.evaluation.evaluate import evaluate
from trans_encoder.evaluation.metrics import auc, spearman


@pytest.fixture(scope="module")
def bi(bert):
    return BiEncoder.load(bert, pooling="cls", max_tokens=32)


@pytest.fixture(scope="module")
def cross(roberta):
    return CrossEncoder.load(roberta, max_tokens=64, seed=3)


@pytest.fixture(scope="module")
def tests():
    graded_set = TestSet("graded", graded(35, seed=5))
    labelled = graded(28, seed=6)
    return {"graded": graded_set, "binary": TestSet("binary", labelled.with_scores(labelled.scores > 0.5))}


def test_each_test_set_has_its_own_metric_and_the_average_is_plain(bi, tests):
    result = evaluate(bi, tests)
    assert result.scores["graded"] == pytest.approx(spearman(bi.score(tests["graded"].pairs), tests["graded"].gold))
    assert result.scores["binary"] == pytest.approx(auc(bi.score(tests["binary"].pairs), tests["binary"].gold))
    assert result.average == pytest.approx(sum(result.scores.values()) / 2)
    assert result.counts == {"graded": 35, "binary": 28}


def test_an_ensemble_is_the_mean_of_scores_of_any_kind(bi, cross, tests):
    pairs = tests["graded"].pairs
    np.testing.assert_allclose(
        ensemble_scores([bi, cross], pairs), (bi.score(pairs) + cross.score(pairs)) / 2, atol=1e-6
    )
    result = evaluate([bi, cross], tests["graded"])
    mean = (bi.score(pairs) + cross.score(pairs)) / 2
    assert result.scores["graded"] == pytest.approx(spearman(mean, tests["graded"].gold), abs=0.1)
    assert [model.split()[-1] for model in result.models] == ["(bi)", "(cross)"]
    assert evaluate([bi, bi], tests).scores == pytest.approx(evaluate(bi, tests).scores)


def test_a_task_gives_its_name_and_one_test_set_its_own(bi, tests, pairs):
    assert evaluate(bi, Task("mine", pairs, tests=tests)).task == "mine"
    assert evaluate(bi, tests["graded"]).task == "graded"
    result = evaluate(bi, tests).to_dict()
    assert set(result) == {"task", "models", "scores", "average", "counts", "cuts"}


def test_a_sentence_transformer_made_elsewhere(bert, tests, tmp_path):
    body = Transformer(str(bert))
    pooling = Pooling(body.get_embedding_dimension(), pooling_mode="max")
    dense = Dense(pooling.get_embedding_dimension(), 12)
    model = sentence_transformers.SentenceTransformer(modules=[body, pooling, dense], device="cpu")
    model.save_pretrained(str(tmp_path / "elsewhere"))
    pairs = tests["graded"].pairs
    left, right = (
        model.encode(side.to_pylist(), convert_to_tensor=True) for side in (pairs.sentence1, pairs.sentence2)
    )
    cosines = torch.nn.functional.cosine_similarity(left, right).numpy()
    found = evaluate(tmp_path / "elsewhere", tests["graded"])
    assert found.scores["graded"] == pytest.approx(spearman(cosines, tests["graded"].gold), abs=0.5)
    np.testing.assert_allclose(BiEncoder.load(tmp_path / "elsewhere").score(pairs), cosines, atol=1e-5)


def test_a_cross_encoder_made_elsewhere(roberta, tests, tmp_path):
    model = sentence_transformers.CrossEncoder(str(roberta), num_labels=1, device="cpu")
    model.save_pretrained(str(tmp_path / "elsewhere"))
    pairs = tests["graded"].pairs
    predicted = model.predict(list(zip(pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist(), strict=True)))
    np.testing.assert_allclose(CrossEncoder.load(tmp_path / "elsewhere").score(pairs), predicted, atol=1e-5)
    assert evaluate(str(tmp_path / "elsewhere"), tests["graded"]).models[0].endswith("(cross)")


def test_a_cross_encoder_with_several_labels_is_refused(bert, tests, tmp_path):
    model = sentence_transformers.CrossEncoder(str(bert), num_labels=3, device="cpu")
    model.save_pretrained(str(tmp_path / "nli"))
    with pytest.raises(ConfigurationError, match="3 labels; expected one score a pair"):
        evaluate(tmp_path / "nli", tests["graded"])


def test_a_test_set_that_cannot_be_measured_is_named(bert, tests):
    collapsed = BiEncoder.load(bert, max_tokens=32)
    with torch.no_grad():
        for parameter in collapsed.model.parameters():
            parameter.zero_()
    with pytest.raises(DataError, match=r"test set graded: .*collapsed"):
        evaluate(collapsed, tests)


def test_nothing_to_evaluate(bi, tests, pairs):
    with pytest.raises(ConfigurationError, match="no model to evaluate"):
        evaluate([], tests)
    with pytest.raises(ConfigurationError, match="task mine has no test sets"):
        evaluate(bi, Task("mine", pairs))
