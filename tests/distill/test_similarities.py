"""In-batch distillation: a bare model learns from plain text what its teachers say of every two sentences."""

import json

import pytest
import torch
from scipy.stats import spearmanr
from torch.nn import functional
from typer.testing import CliRunner

from conftest import TINY_RUN
from trans_encoder.cli import app
from trans_encoder.data.text import Text
from trans_encoder.distill.bootstrap import bootstrap
from trans_encoder.distill.bootstrap.similarities import batch_divergence
from trans_encoder.encoders import BiEncoder
from trans_encoder.errors import ConfigurationError
from trans_encoder.pipelines.distil import distil

FAST = {"batch_size": 32, "learning_rate": 3e-3, "epochs": 4}


@pytest.fixture(scope="module")
def text(sentences):
    return Text.from_sentences(sentences)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, roberta):
    """A bi-encoder of another family and width."""
    folder = tmp_path_factory.mktemp("teacher") / "teacher"
    BiEncoder.load(roberta, pooling="mean").save(folder)
    return folder


def test_the_loss_is_the_divergence_of_softmax_over_the_rest_of_the_batch():
    random = torch.Generator().manual_seed(0)
    embeddings, targets = torch.randn(4, 8, generator=random), torch.randn(4, 4, generator=random)
    losses = batch_divergence(embeddings, targets, temperature=0.1)
    unit = functional.normalize(embeddings, dim=1)
    for row in range(4):
        others = [place for place in range(4) if place != row]
        taught = torch.softmax(targets[row, others], 0)
        own = torch.softmax((unit @ unit[row])[others] / 0.1, 0)
        assert losses[row].item() == pytest.approx(float((taught * (taught / own).log()).sum()), rel=1e-5)


def test_a_bare_model_learns_its_teachers_similarities(bert, teacher, text, pairs, tmp_path):
    taught = bootstrap(text, bert, out=tmp_path, objective="similarities", teachers=[teacher], **FAST)
    wanted = BiEncoder.load(teacher).score(pairs)
    before, after = (spearmanr(each.score(pairs), wanted)[0] for each in (BiEncoder.load(bert), taught))
    assert 1 - after < 0.75 * (1 - before)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["teachers"] == [{"spec": str(teacher)}]
    card = (tmp_path / "bi" / "README.md").read_text()
    assert "taught on plain text" in card
    assert "unsupervised" not in card  # for all that is known, the teacher was trained on labels


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"objective": "similarities"}, "needs at least one teacher"),
        ({"objective": "simcse", "teachers": ["teacher"]}, "needs at least one teacher"),
    ],
)
def test_teachers_and_their_objective_belong_together(bert, text, tmp_path, arguments, told):
    with pytest.raises(ConfigurationError, match=told):
        bootstrap(text, bert, out=tmp_path / "out", **arguments)


def test_a_cross_encoder_cannot_teach_similarities(mutual, bert, text, tmp_path):
    cross = mutual / "best" / "bert-32" / "cross"
    with pytest.raises(ConfigurationError, match="is a cross-encoder, which cannot embed single texts"):
        bootstrap(text, bert, out=tmp_path / "out", objective="similarities", teachers=[cross])
    assert not (tmp_path / "out").exists()


def test_on_the_command_line_a_teacher_is_enough(bert, teacher, corpus, tmp_path):
    fast = [f"--set={name}={value}" for name, value in FAST.items()]
    command = ["bootstrap", "--text", corpus, "--model", bert, "--teacher", teacher, "--out", tmp_path / "out", *fast]
    result = CliRunner().invoke(app, [*map(str, command)])
    assert result.exit_code == 0, result.output
    assert "tuned by similarities" in result.output


def test_a_run_from_text_teaches_a_bare_model_first(bert, teacher, text, tmp_path):
    distil(
        text,
        str(bert),
        teachers=[str(teacher), "lexical"],
        out=tmp_path,
        pairs=60,
        **TINY_RUN | {"cycles": 1, "formulation": "bi"},
    )
    config = json.loads((tmp_path / "from-text" / "bert-32" / "config.json").read_text())
    assert config["plan"]["objective"] == "similarities"
    assert config["teachers"] == [{"spec": str(teacher)}]
