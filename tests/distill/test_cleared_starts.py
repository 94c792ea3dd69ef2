"""Runs that remove common directions from their starts."""

import json

import numpy as np
import pytest

from conftest import TINY_RUN
from trans_encoder.config import PRESETS, MemberConfig, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.distill.team import DIRECTIONS, resolve_members
from trans_encoder.encoders import BiEncoder
from trans_encoder.pipelines.distil import distil

SHORT = {**TINY_RUN, "cycles": 1, "formulation": "bi", "directions": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory, bert, pairs, dev):
    """A finished run that removed two directions. Do not change it."""
    return distil(pairs, str(bert), dev=dev, out=tmp_path_factory.mktemp("cleared") / "run", **SHORT)


def modules(folder):
    return [module["type"].rpartition(".")[2] for module in json.loads((folder / "modules.json").read_text())]


def test_labels_come_from_the_start_without_its_common_directions(run):
    pairs = PairSet.open(run.folder / "pairs.arrow")
    cleared = BiEncoder.load(run.folder / "starts" / "bert-32")
    labels = PseudoLabels.open(run.folder / "cycle-1" / "labels-bi.parquet")
    np.testing.assert_allclose(labels.by_teacher["bert-32"], cleared.score(pairs), atol=1e-6)
    assert np.abs(cleared.encode(pairs.distinct().sentences).mean(axis=0)).max() < 1e-5


def test_the_student_is_saved_with_the_module_that_removes_them(run):
    assert modules(run.folder / "cycle-1" / "bert-32" / "bi") == ["Transformer", "Pooling", "Dense"]
    assert modules(run.folder / "starts" / "bert-32") == ["Transformer", "Pooling", "Dense"]


def test_a_run_is_compared_with_the_start_as_its_user_has_it(run, bert, dev):
    result = json.loads((run.folder / "result.json").read_text())["members"]["bert-32"]
    assert result["source"] == str(bert)
    start = json.loads((run.folder / "start.json").read_text())["bert-32"]
    assert start["source"] == str(bert)


def test_starts_that_may_know_labels_and_the_papers_presets_keep_theirs(bert, start):
    assert DIRECTIONS > 0
    members = [str(bert), str(start), MemberConfig(bi=str(bert), name="other", directions=1)]
    resolved = resolve_members(make_config(members))[0]
    assert [member.directions for member in resolved.members] == [DIRECTIONS, 0, 1]
    for preset in PRESETS:
        if preset != "small":
            resolved = resolve_members(make_config([str(bert)], preset=preset))[0]
            assert resolved.members[0].directions == 0
