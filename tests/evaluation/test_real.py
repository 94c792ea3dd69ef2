"""A released model and published data: the evaluation gives the figures that others have measured."""

import os

import pytest

from trans_encoder.data.tasks import load_task
from trans_encoder.encoders import BiEncoder
from trans_encoder.evaluation.evaluate import evaluate

MTEB = {"sts12": 72.37, "sts13": 80.60, "sts14": 75.59, "sts15": 85.39, "sts16": 78.99, "stsb": 82.03}
"""Spearman x100 of all-MiniLM-L6-v2, as published."""

given = {name: os.environ.get(f"TRANS_ENCODER_{name.upper()}") for name in ("data", "model")}


@pytest.mark.real
@pytest.mark.skipif(
    None in given.values(),
    reason="TRANS_ENCODER_DATA names a folder of task data, TRANS_ENCODER_MODEL one of all-MiniLM-L6-v2",
)
def test_the_evaluation_agrees_with_mteb():
    task = load_task("sts", data_dir=given["data"], tests_only=True)
    scores = evaluate(BiEncoder.load(given["model"]), task).scores
    assert {name: scores[name] for name in MTEB} == pytest.approx(MTEB, abs=0.15)
