"""Runs with prompts: teachers and students use them, and what is delivered keeps them."""

import numpy as np
from sentence_transformers import SentenceTransformer

from conftest import TINY_RUN
from trans_encoder.config import MemberConfig
from trans_encoder.distill.distil import distil
from trans_encoder.distill.labels.pseudo_labels import PseudoLabels
from trans_encoder.encoders import BiEncoder


def test_a_runs_models_keep_the_prompts_they_learnt_with(bert, pairs, dev, tmp_path):
    prompts = {"query": "the baker asks: ", "document": "tall clock: "}
    plain = SentenceTransformer(modules=list(SentenceTransformer(str(bert))), prompts=prompts)
    plain.save_pretrained(str(tmp_path / "asked"))
    member = MemberConfig(bi=str(tmp_path / "asked"), prompt1="query", prompt2="document", name="asked")
    run = distil(pairs, [member], dev=dev, out=tmp_path / "run", **{**TINY_RUN, "cycles": 1}).folder
    labels = PseudoLabels.open(next(run.glob("cycle-1/labels-bi.parquet")))
    start = BiEncoder.load(tmp_path / "asked", prompts=("query", "document"), max_tokens=32)
    np.testing.assert_allclose(labels.by_teacher["asked"], start.score(labels.pairs), atol=1e-5)
    delivered = BiEncoder.load(run / "best" / "bi")
    assert [prompt.text for prompt in delivered.prompts] == list(prompts.values())
