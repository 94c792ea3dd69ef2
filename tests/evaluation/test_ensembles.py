"""Saved ensembles: what they give to scores unlike those that they were saved with."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from trans_encoder.cli import app
from trans_encoder.config import TeacherConfig
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.writers import write_pairs
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.errors import ConfigurationError
from trans_encoder.evaluation.ensembles import Ensemble, Voter, save_ensemble
from trans_encoder.teachers import ModelRef, make_teacher


@pytest.fixture
def saved(bert, pairs, tmp_path) -> Path:
    """An ensemble whose second model asks to run its own code."""
    save_ensemble([Voter("a", BiEncoder.load(bert)), Voter("b", BiEncoder.load(bert))], pairs, out=tmp_path / "team")
    config = tmp_path / "team/b/config.json"
    config.write_text(json.dumps({**json.loads(config.read_text(encoding="utf-8")), "auto_map": {}}), encoding="utf-8")
    return tmp_path / "team"


def test_its_models_are_loaded_as_asked(saved, bert, pairs, tmp_path):
    with pytest.raises(ConfigurationError, match="own code"):
        Ensemble.open(saved).score(pairs)
    scores = Ensemble.open(saved, trust_remote_code=True).score(pairs)
    like = ModelRef("m", "bi", str(bert), max_tokens=None, trust_remote_code=True)
    teacher = make_teacher(TeacherConfig(spec=str(saved), name="team"), like=like)
    np.testing.assert_array_equal(teacher.score(pairs), scores)
    with pytest.raises(ConfigurationError, match=r"could not be loaded.*nowhere"):
        make_teacher(TeacherConfig(spec=str(saved), name="team"), like=like.at(bert, device="nowhere")).score(pairs)
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    words = ["score", str(saved), "--pairs", str(tmp_path / "pairs.jsonl"), "--json"]
    assert CliRunner().invoke(app, words).exit_code == 2
    shown = CliRunner().invoke(app, [*words, "--trust-remote-code"])
    assert json.loads(shown.stdout)["scores"] == scores.tolist()


def test_models_elsewhere_are_no_part_of_an_ensemble(saved, bert):
    shutil.rmtree(saved / "b")
    note = json.loads((saved / "ensemble.json").read_text(encoding="utf-8"))
    for elsewhere in (str(bert), "../team/a"):
        note["parts"][1]["folder"] = elsewhere
        (saved / "ensemble.json").write_text(json.dumps(note), encoding="utf-8")
        with pytest.raises(ConfigurationError, match="is not in the folder"):
            Ensemble.open(saved)


@pytest.mark.parametrize("kind", [BiEncoder, CrossEncoder])
def test_scores_beyond_the_sample_keep_their_order(bert, pairs, tmp_path, kind):
    encoder = kind.load(bert)
    given = [(first, second) for first, second, _ in pairs.rows()]
    scores = encoder.score(pairs)
    order = np.argsort(scores, kind="stable")
    middle = order[len(order) // 3 : -len(order) // 3]
    sample = PairSet.of([given[place] for place in middle])
    voters = [Voter("a", encoder), Voter("b", encoder)]
    found = save_ensemble(voters, sample, out=tmp_path / "ensemble").score(pairs)
    steps, rises = np.diff(found[order]), np.diff(scores[order])
    assert (steps[rises > 1e-5] > 0).all(), "no ties where the model sees a difference"
    assert (steps[rises > 0] >= 0).all()
    assert 0 < found.min() < found.max() < 1
