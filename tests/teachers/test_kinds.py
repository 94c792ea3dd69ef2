"""Kinds of teachers and how they are asked: BM25, objects with a method `score`, passes with dropout."""

import json

import numpy as np
import pytest
import torch
from huggingface_hub import metadata_load
from scipy.stats import spearmanr

from conftest import TINY_RUN
from trans_encoder.config import TeacherConfig
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.distill.run import Result
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.loading import set_dropout
from trans_encoder.encoders.passes import mean_with_dropout
from trans_encoder.errors import ConfigurationError
from trans_encoder.evaluation.ensembles import Voter, save_ensemble
from trans_encoder.pipelines.distil import distil
from trans_encoder.pipelines.ensemble import ensemble_run
from trans_encoder.teachers.frozen import WordingTeacher, name_functions

RUN = {**TINY_RUN, "cycles": 1, "scale": None, "selection": "last", "formulation": "bi"}


def labels_of(result) -> PseudoLabels:
    """The labels that the bi-encoders and the teachers gave."""
    return PseudoLabels.open(result.folder / "cycle-1" / "labels-bi.parquet")


def test_words_can_teach_as_bm25_beside_letter_groups(bert, pairs, tmp_path):
    result = distil(pairs, str(bert), teachers=["lexical", "bm25=0.5"], out=tmp_path / "run", **RUN)
    labels = labels_of(result)
    assert list(labels.by_teacher) == ["bert-32", "lexical", "bm25"]
    assert labels.provenance["weights"]["bm25"] == 0.5
    np.testing.assert_array_equal(labels.by_teacher["bm25"], WordingTeacher("bm25", "bm25").score(pairs))
    assert "bm25" in labels.provenance["fingerprints"]


def test_objects_that_score_teach(bert, roberta, pairs, tmp_path):
    encoders = [BiEncoder.load(roberta), CrossEncoder.load(bert, seed=3)]
    saved = save_ensemble([Voter("a", encoders[0]), Voter("b", encoders[1])], pairs, out=tmp_path / "team")
    result = distil(pairs, str(bert), teachers=[*encoders, saved], out=tmp_path / "run", **RUN)
    named = distil(pairs, str(bert), teachers=[f"{tmp_path / 'team'}=2"], out=tmp_path / "named", **RUN)
    labels = labels_of(result)
    np.testing.assert_array_equal(labels_of(named).by_teacher["team"], labels.by_teacher["team"])
    assert labels_of(named).provenance["weights"]["team"] == 2
    assert list(labels.by_teacher) == ["bert-32", "roberta-48", "bert-32-2", "team"]
    for name, teacher in zip(list(labels.by_teacher)[1:], [*encoders, saved], strict=True):
        np.testing.assert_allclose(labels.by_teacher[name], teacher.score(labels.pairs), atol=1e-5)
    assert len(set(labels.provenance["fingerprints"].values())) == 4


def test_functions_and_objects_of_one_name_are_all_asked():
    class Named:
        name = "rate-2"

        def score(self, pairs):
            return [0.0] * len(pairs)

    def rate(pairs):
        return [1.0] * len(pairs)

    first, again = rate, lambda pairs: [2.0] * len(pairs)
    again.__name__ = "rate"
    named = name_functions([first, Named(), again])
    asked = [named.functions[teacher.spec]([("a", "b")])[0] for teacher in named.teachers]
    assert asked == [1.0, 0.0, 2.0]


def test_cards_and_results_name_teachers_and_merging_and_do_not_hide_labels(bert, start, pairs, tmp_path):
    """A start made without labels is not free of them once a teacher that may know some has taught it."""
    alone = distil(pairs, str(bert), teachers=["lexical"], out=tmp_path / "alone", **RUN)
    taught = distil(pairs, str(bert), teachers=[f"{start}=0.5"], merge=0.75, out=tmp_path / "taught", **RUN)
    cards = [(result.folder / "best/bi/README.md").read_text(encoding="utf-8") for result in (alone, taught)]
    assert "unsupervised" in metadata_load(alone.folder / "best/bi/README.md")["tags"]
    assert "unsupervised" not in metadata_load(taught.folder / "best/bi/README.md")["tags"]
    assert "Teachers beside it: lexical" in cards[0]
    assert f"Teachers beside it: {start.name}, weight 0.5" in cards[1].replace("\\", "")
    assert "Weights: 0.75 of the student, 0.25 of what it started from" in cards[1]
    assert (alone.members["bert-32"].bi.merged, taught.members["bert-32"].bi.merged) == (None, 0.75)
    assert any("bi-encoder of bert-32 are merged: 0.75 of the student" in note for note in taught.notes)
    assert not any("merged" in note for note in alone.notes)


def test_a_cross_encoder_that_has_not_learnt_is_neither_shipped_nor_in_the_ensemble(start, roberta, pairs, tmp_path):
    given = {**RUN, "formulation": "alternate", "selection": "label-free"}
    result = distil(pairs, str(start), teachers=[str(roberta)], out=tmp_path / "run", **given)
    record = json.loads((tmp_path / "run/result.json").read_text())
    assert record["members"]["start"]["cross"]["agreement"] < 81
    assert result.helped["cross"] is False
    assert "Not better cross-encoder: agreement with the teachers" in result.summary
    assert list(result.to_ship) == ["bi"]
    assert [part.folder.name for part in ensemble_run(result, out=tmp_path / "team").parts] == [
        "start-bi",
        "roberta-48",
    ]
    record["members"]["start"]["cross"]["agreement"] = 81.0
    (tmp_path / "run/result.json").write_text(json.dumps(record), encoding="utf-8")
    assert list(Result.open(tmp_path / "run").to_ship) == ["bi", "cross"]
    assert len(ensemble_run(tmp_path / "run", out=tmp_path / "team").parts) == 3


def test_a_file_without_a_column_of_scores_is_refused_with_the_names_that_are_known(bert, pairs, tmp_path):
    (tmp_path / "llm.csv").write_text("question1,question2,rating\na b c,d e f,3\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"has no scores; .* a column called score or similarity"):
        distil(pairs, str(bert), teachers=[str(tmp_path / "llm.csv")], out=tmp_path / "run", **RUN)


def test_an_object_that_scores_no_pairs_is_refused(bert, pairs, tmp_path):
    for wrong in (BiEncoder.load(bert).model, 0.5):
        with pytest.raises(ConfigurationError, match=f"{type(wrong).__name__} cannot score pairs; give a model's name"):
            distil(pairs, str(bert), teachers=[wrong], out=tmp_path / "run", **RUN)
    assert not (tmp_path / "run").exists()


def test_labels_can_be_the_mean_of_passes_with_dropout(bert, roberta, pairs, tmp_path):
    teachers = [TeacherConfig(spec=str(roberta), name="other", passes=3), "lexical"]
    given = {**RUN, "in_batch": 5.0, "supervised": True}
    result = distil(pairs, str(bert), teachers=teachers, passes=2, out=tmp_path / "run", **given)
    labels = labels_of(result)
    plain = BiEncoder.load(bert, fast=False)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        state = torch.get_rng_state()
        expected = mean_with_dropout(plain, labels.pairs, passes=2)
        assert torch.equal(torch.get_rng_state(), state), "the caller's random numbers go on as they were"
    np.testing.assert_allclose(labels.by_teacher["bert-32"], expected, atol=1e-5)
    once = plain.score(labels.pairs)
    assert not np.allclose(expected, once, atol=1e-4), "dropout drops"
    np.testing.assert_array_equal(plain.score(labels.pairs), once, "and stops dropping after")
    thinned = mean_with_dropout(BiEncoder.load(roberta, fast=False), labels.pairs, passes=3)
    np.testing.assert_allclose(labels.by_teacher["other"], thinned, atol=1e-5)
    assert (
        spearmanr(mean_with_dropout(plain, labels.pairs, passes=16), once).statistic
        > spearmanr(mean_with_dropout(plain, labels.pairs, passes=1), once).statistic
    )


def test_passes_are_refused_for_what_has_no_dropout(bert, pairs, tmp_path):
    with pytest.raises(ConfigurationError, match="passes are for models"):
        distil(pairs, str(bert), teachers=[{"spec": "lexical", "passes": 2}], out=tmp_path / "run", **RUN)
    still = BiEncoder.load(bert, fast=False)
    set_dropout(still.model, 0.0)
    with pytest.raises(ConfigurationError, match="has no dropout"):
        mean_with_dropout(still, pairs, passes=2)


def test_held_out_pairs_are_asked_in_parts_and_once_too(bert, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr("trans_encoder.teachers.asking.ASKED_AT_ONCE", 10)
    asked: list[tuple[str, str]] = []
    down = [True]

    def service(given):
        if down and len(asked) == 20:
            raise ConnectionError("the service is down")
        asked.extend(given)
        return [len(set(first.split()) & set(second.split())) for first, second in given]

    held_out = tmp_path / "run/held-out.parquet"
    given = {"teachers": [service], "out": tmp_path / "run", **RUN, "selection": "label-free", "ask": 1.0}
    with pytest.raises(ConnectionError):
        distil(pairs, str(bert), **given)
    assert not held_out.exists()
    down.clear()
    distil(pairs, str(bert), **given)
    assert len(asked) == len(set(asked)) == len(pairs), "each pair once"
    judged = PseudoLabels.open(held_out)
    words = [len(set(first.split()) & set(second.split())) for first, second, _ in judged.pairs.rows()]
    assert len(words) > 20
    np.testing.assert_array_equal(judged.by_teacher["service"], words)


def test_what_a_function_answered_before_a_failure_is_not_asked_again(bert, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr("trans_encoder.teachers.asking.ASKED_AT_ONCE", 20)
    asked: list[tuple[str, str]] = []
    down = [True]

    def service(given):
        if down and len(asked) == 40:
            raise ConnectionError("the service is down")
        asked.extend(given)
        return [len(set(first.split()) & set(second.split())) for first, second in given]

    given = {"teachers": [service], "out": tmp_path / "run", **RUN}
    with pytest.raises(ConnectionError):
        distil(pairs, str(bert), **given)
    answers = tmp_path / "run/cycle-1/labels-bi.parquet.training/service.jsonl"
    with answers.open("a", encoding="utf-8") as file:
        file.write('\n["half a line of')
    down.clear()
    result = distil(pairs, str(bert), **given)
    rows = {(first, second) for first, second, _ in pairs.rows()}
    assert len(asked) == len(set(asked)) == len(rows), "each pair once"
    words = [len(set(first.split()) & set(second.split())) for first, second, _ in labels_of(result).pairs.rows()]
    np.testing.assert_array_equal(labels_of(result).by_teacher["service"], words)
    assert not answers.parent.exists(), "the labels hold them now"
