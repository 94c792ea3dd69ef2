"""Runs with prompts: teachers and students use them, and what is delivered keeps them."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from conftest import TINY_RUN
from trans_encoder.config import MemberConfig, TeacherConfig, load_config
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.distill.run import run
from trans_encoder.encoders import BiEncoder
from trans_encoder.errors import ConfigurationError
from trans_encoder.pipelines.distil import distil

PROMPTS = {"query": "the baker asks: ", "document": "tall clock: "}


@pytest.fixture
def asked(bert, tmp_path):
    """A model with prompts of its own."""
    plain = SentenceTransformer(modules=list(SentenceTransformer(str(bert))), prompts=PROMPTS)
    plain.save_pretrained(str(tmp_path / "asked"))
    return tmp_path / "asked"


def test_a_runs_models_keep_the_prompts_they_learnt_with(asked, pairs, dev, tmp_path):
    member = MemberConfig(bi=str(asked), prompt1="query", prompt2="document", name="asked")
    folder = distil(pairs, [member], dev=dev, out=tmp_path / "run", **{**TINY_RUN, "cycles": 1}).folder
    labels = PseudoLabels.open(next(folder.glob("cycle-1/labels-bi.parquet")))
    start = BiEncoder.load(asked, prompts=("query", "document"), max_tokens=32)
    np.testing.assert_allclose(labels.by_teacher["asked"], start.score(labels.pairs), atol=1e-5)
    delivered = BiEncoder.load(folder / "best" / "bi")
    assert [prompt.text for prompt in delivered.prompts] == list(PROMPTS.values())


def test_teachers_have_prompts_too_from_a_file(asked, bert, pairs, tmp_path):
    file = tmp_path / "run.toml"
    teachers = f'teachers = [{{spec = "{asked}", prompt1 = "query", prompt2 = "document", name = "asked"}}]'
    file.write_text(f'members = ["{bert}"]\n{teachers}\n', encoding="utf-8")
    config = load_config(file, {**TINY_RUN, "cycles": 1, "selection": "last", "formulation": "bi"}).run
    labels = PseudoLabels.open(run(config, pairs, out=tmp_path / "run").folder / "cycle-1/labels-bi.parquet")
    expected = BiEncoder.load(asked, prompts=("query", "document")).score(labels.pairs)
    np.testing.assert_allclose(labels.by_teacher["asked"], expected, atol=1e-5)
    assert np.abs(expected - BiEncoder.load(asked).score(labels.pairs)).max() > 1e-3


def test_a_teacher_that_reads_no_prompt_is_given_none(bert, pairs, tmp_path):
    teacher = TeacherConfig(spec="lexical", prompt="query: ")
    with pytest.raises(ConfigurationError, match="lexical is no bi-encoder, and prompts are for these"):
        distil(pairs, str(bert), teachers=[teacher], out=tmp_path / "run", **TINY_RUN)
