"""Runs of several members: what one knows reaches the others."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from conftest import TINY_RUN
from trans_encoder.cli import app
from trans_encoder.config import make_config
from trans_encoder.data.writers import write_pairs
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.distill.team import resolve_members
from trans_encoder.encoders import BiEncoder, load_encoder
from trans_encoder.errors import ConfigurationError
from trans_encoder.pipelines.distil import distil
from trans_encoder.report import write_report


@pytest.fixture
def poor(bert, tmp_path):
    """A BERT that takes most of its words for one and the same."""
    encoder = BiEncoder.load(bert)
    with torch.no_grad():
        words = encoder.model[0].auto_model.embeddings.word_embeddings.weight
        words[torch.arange(len(words)) % 4 != 0] = words[-1].clone()
    encoder.save(tmp_path / "poor")
    return tmp_path / "poor"


def test_a_poor_start_is_helped_by_a_better_member(poor, roberta, pairs, dev, tmp_path):
    """Mutual distillation carries what one member knows to the other."""
    given = {**TINY_RUN, "cycles": 1, "supervised": False, "bi": {**TINY_RUN["bi"], "epochs": 8, "dropout": 0.0}}
    result = distil(pairs, [str(poor), str(roberta)], dev=dev, out=tmp_path / "run", formulation="bi", **given)
    member = result.members["poor"]
    assert member.bi.score > member.start_score + 5
    assert member.bi.helped
    best = max(result.members, key=lambda name: result.members[name].bi.score)
    assert result.to_ship == {"bi": tmp_path / "run" / "best" / best / "bi"}


def test_in_a_sequential_ensemble_each_member_learns_from_the_one_before(bert, roberta, pairs, dev, tmp_path):
    given = {**TINY_RUN, "cycles": 2, "strategy": "sequential-ensemble"}
    result = distil(pairs, [str(bert), str(roberta)], dev=dev, out=tmp_path, **given)
    teachers = {
        (cycle, name, kind): PseudoLabels.open(tmp_path / f"cycle-{cycle}" / name / f"labels-{kind}.parquet")
        for cycle in (1, 2)
        for name in ("bert-32", "roberta-48")
        for kind in ("bi", "cross")
    }
    taught = {place: labels.provenance["teachers"] for place, labels in teachers.items()}
    assert all(taught[cycle, name, "cross"] == [name] for cycle in (1, 2) for name in ("bert-32", "roberta-48"))
    assert taught[1, "bert-32", "bi"] == ["bert-32"]
    assert taught[1, "roberta-48", "bi"] == taught[2, "roberta-48", "bi"] == ["bert-32"]
    assert taught[2, "bert-32", "bi"] == ["roberta-48"]
    last = BiEncoder.load(tmp_path / "cycle-1" / "roberta-48" / "bi").score(pairs)
    np.testing.assert_allclose(teachers[2, "bert-32", "bi"].scores, last, atol=1e-6)
    assert result.cycles == 2
    assert {kind: folder.parent.parent.name for kind, folder in result.to_ship.items()} == {
        "bi": "best",
        "cross": "best",
    }
    assert all(load_encoder(folder).kind == kind for kind, folder in result.to_ship.items())
    assert write_report([tmp_path]).exists()


def test_the_last_member_of_a_sequential_ensemble_is_shipped_if_nothing_was_judged(bert, roberta, pairs, tmp_path):
    write_pairs(pairs.take(range(24)), tmp_path / "pairs.jsonl")
    quick = ["cycles=1", "bi.epochs=1", "selection=last"]
    for strategy, place, name in (("sequential-ensemble", "last", "roberta-48"), ("refresh", "first", "bert-32")):
        out = tmp_path / strategy
        settings = [part for each in (*quick, f"strategy={strategy}") for part in ("--set", each)]
        given = ["--pairs", tmp_path / "pairs.jsonl", "--model", bert, "--model", roberta, "--out", out, *settings]
        shown = CliRunner().invoke(app, ["train", *map(str, given)]).stdout
        folders = {kind: out / "best" / name / kind for kind in ("bi", "cross")}
        assert f"To ship: {folders['bi']} to embed texts, {folders['cross']} to score pairs" in shown
        assert f"the {place} member's, since nothing was judged" in shown


@pytest.mark.parametrize("setting", [{"anchor": 0.5}, {"formulation": "bi"}])
def test_a_sequential_ensemble_takes_neither_anchor_nor_bi_encoders_alone(setting):
    with pytest.raises(ConfigurationError, match="sequential-ensemble is for anchor 0"):
        resolve_members(make_config(["a", "b"], overrides={"strategy": "sequential-ensemble", **setting}))


@pytest.mark.parametrize(("negatives", "taken"), [("clamp", "clamped them"), ("raw", "took them raw")])
def test_labels_outside_probabilities_are_counted_in_the_notes(bert, pairs, tmp_path, negatives, taken):
    def below_zero(asked):
        return [-3.0 if number % 2 else 0.5 for number, _ in enumerate(asked)]

    given = {**TINY_RUN, "cycles": 1, "selection": "last", "cross": {**TINY_RUN["cross"], "negatives": negatives}}
    result = distil(pairs, str(bert), teachers=[below_zero], out=tmp_path, **given)
    labels = PseudoLabels.open(tmp_path / "cycle-1" / "labels-bi.parquet")
    assert labels.outside_unit == len(labels) // 2
    said = [note for note in result.notes if "outside [0, 1]" in note]
    assert said == [
        f"cycle 1: {len(labels) // 2} of {len(labels)} labels for the cross-encoders were outside [0, 1]; "
        f"the BCE loss {taken}"
    ]
