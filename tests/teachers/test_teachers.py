"""Teachers beside the team: they score every labelling, are asked once for a pair, and are never trained."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from typer.testing import CliRunner

from conftest import TINY_RUN, contents
from trans_encoder.cli import app
from trans_encoder.config import TeacherConfig, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import TestSet
from trans_encoder.data.writers import write_pairs
from trans_encoder.distill.labels import PseudoLabels, agreed, label
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.calibrating import calibrate_to, calibrated_line
from trans_encoder.encoders.matching import match_tokens
from trans_encoder.encoders.merging import merge_into
from trans_encoder.errors import ConfigurationError, DataError, RunError
from trans_encoder.evaluation.ensembles import Ensemble, Voter, save_ensemble
from trans_encoder.evaluation.evaluate import evaluate, measure
from trans_encoder.pipelines.distil import distil
from trans_encoder.pipelines.ensemble import ensemble_run
from trans_encoder.pipelines.planning import plan_run
from trans_encoder.report import write_report
from trans_encoder.teachers import Vote
from trans_encoder.teachers.frozen import FunctionTeacher, WordingTeacher
from trans_encoder.teachers.scales import pairs_to_ask

RUN = {**TINY_RUN, "cycles": 1, "scale": None, "selection": "last"}
RUN["cross"] = {**TINY_RUN["cross"], "learning_rate": 1e-4}


def shared_words(pairs: list[tuple[str, str]]) -> list[float]:
    """A teacher as a user would write it: the number of words in common."""
    return [len(set(first.split()) & set(second.split())) for first, second in pairs]


ASKED: list[tuple[str, str]] = []


def counted_words(pairs: list[tuple[str, str]]) -> list[float]:
    """The same, and what was asked is noted."""
    ASKED.extend(pairs)
    return shared_words(pairs)


@pytest.fixture(scope="module")
def reranker(bert, tmp_path_factory):
    """A cross-encoder with a head whose logits lie far from zero, as a public re-ranker's do."""
    folder = tmp_path_factory.mktemp("reranker") / "reranker"
    encoder = CrossEncoder.load(bert, seed=3)
    with torch.no_grad():
        encoder.model.model.classifier.weight.mul_(30)
        encoder.model.model.classifier.bias.sub_(8)
    encoder.save(folder)
    return folder


@pytest.fixture(scope="module")
def taught(bert, roberta, reranker, pairs, dev, tmp_path_factory):
    """A run with every kind of teacher that a configuration can name, and a Python function."""
    folder = tmp_path_factory.mktemp("taught")
    labelled = pairs.with_scores(np.arange(len(pairs)) / len(pairs))
    with (folder / "people.jsonl").open("w", encoding="utf-8") as file:
        for first, second, score in labelled.rows(10):
            file.write(json.dumps({"sentence1": second, "sentence2": first, "score": score}) + "\n")
    teachers = [str(roberta), f"{reranker}=0.5", "lexical=0.3", "tokens", str(folder / "people.jsonl"), shared_words]
    return distil(pairs, f"{bert}={reranker}", teachers=teachers, out=folder / "run", **RUN)


def labels_of(result, kind):
    return PseudoLabels.open(result.folder / f"cycle-1/labels-{kind}.parquet")


def test_every_teacher_has_its_column_in_every_labelling(taught):
    names = ["bert-32", "roberta-48", "reranker", "lexical", "tokens", "people.jsonl", "shared_words"]
    for kind in ("bi", "cross"):
        assert list(labels_of(taught, kind).by_teacher) == names


def test_frozen_teachers_say_the_same_in_both_halves_of_a_cycle(taught):
    first, second = labels_of(taught, "bi").by_teacher, labels_of(taught, "cross").by_teacher
    for name in list(first)[1:]:
        np.testing.assert_array_equal(first[name], second[name])
    assert not np.array_equal(first["bert-32"], second["bert-32"])


def test_labels_name_their_teachers_scale_weights_and_fingerprints(taught):
    provenance = labels_of(taught, "bi").provenance
    assert provenance["scale"] == "rank"
    assert provenance["weights"]["reranker"] == 0.5
    assert provenance["weights"]["lexical"] == 0.3
    assert provenance["weights"]["bert-32"] == 1.0
    assert len(set(provenance["fingerprints"].values())) == 7


def test_the_report_shows_frozen_teachers_beside_the_members(taught):
    page = write_report([taught.folder]).read_text(encoding="utf-8")
    assert all(name in page for name in ("roberta-48", "reranker", "lexical"))


def test_a_function_teacher_gives_what_the_function_returns(taught):
    labels = labels_of(taught, "bi")
    pairs = [(first, second) for first, second, _ in labels.pairs.rows()]
    np.testing.assert_array_equal(labels.by_teacher["shared_words"], shared_words(pairs))


def test_pairs_that_a_file_does_not_score_are_left_to_the_others(taught):
    people = labels_of(taught, "bi").by_teacher["people.jsonl"]
    assert 0 < np.count_nonzero(~np.isnan(people)) <= 10
    assert np.isfinite(labels_of(taught, "bi").scores).all()


def test_a_bi_encoder_learns_labels_on_its_own_scale(taught, monkeypatch, bert, pairs):
    """What it is taught has the distribution of its own first scores, in the order of the labels."""
    own, labels = labels_of(taught, "bi").by_teacher["bert-32"], labels_of(taught, "cross")
    from trans_encoder.distill.labels import on_scale_of

    targets = on_scale_of(labels, own).scores
    np.testing.assert_allclose(np.sort(targets), np.sort(own), atol=1e-6)
    assert spearmanr(targets, labels.scores).statistic > 0.999


def test_the_same_call_again_changes_nothing(taught, bert, roberta, reranker, pairs):
    folder = taught.folder.parent
    before = contents(taught.folder)
    teachers = [str(roberta), f"{reranker}=0.5", "lexical=0.3", "tokens", str(folder / "people.jsonl"), shared_words]
    distil(pairs, f"{bert}={reranker}", teachers=teachers, out=taught.folder, **RUN)
    assert contents(taught.folder) == before


def test_without_a_dev_set_no_teacher_is_asked_twice_about_a_pair(bert, pairs, tmp_path):
    """Held-out pairs judge both students of the cycle; a file that scores two pairs knows none or one of them."""
    labelled = pairs.with_scores(np.arange(len(pairs)) / len(pairs))
    with (tmp_path / "people.jsonl").open("w", encoding="utf-8") as file:
        for first, second, score in labelled.rows(2):
            file.write(json.dumps({"sentence1": first, "sentence2": second, "score": score}) + "\n")
    ASKED.clear()
    teachers = [str(tmp_path / "people.jsonl"), counted_words, "lexical"]
    result = distil(pairs, str(bert), teachers=teachers, out=tmp_path / "run", **{**RUN, "selection": "label-free"})
    assert len(ASKED) == len(pairs)
    assert len(set(ASKED)) == len(set(ASKED) | {(first, second) for first, second, _ in pairs.rows()})
    held_out = PseudoLabels.open(result.folder / "held-out.parquet")
    assert list(held_out.by_teacher) == ["people.jsonl", "counted_words", "lexical"]
    assert len(held_out) + len(PairSet.open(result.folder / "pairs.arrow")) == len(pairs)


def test_a_file_that_scores_none_of_the_pairs_is_refused_before_any_work(bert, pairs, tmp_path):
    (tmp_path / "people.jsonl").write_text('{"sentence1": "x", "sentence2": "y", "score": 1}\n', encoding="utf-8")
    with pytest.raises(DataError, match="has a score for none of the 96 pairs"):
        distil(pairs, str(bert), teachers=[str(tmp_path / "people.jsonl")], out=tmp_path / "run", **RUN)
    assert not (tmp_path / "run").exists()


def test_one_other_teacher_cannot_disagree_so_the_costly_one_is_asked_about_random_pairs(pairs):
    rows = pairs_to_ask({"only": np.arange(100, dtype=np.float32)}, share=0.1)
    assert len(rows) == 10
    assert rows.max() > 20


def test_another_set_of_teachers_is_another_run(taught, bert, reranker, pairs):
    with pytest.raises((ConfigurationError, RunError), match="teachers"):
        distil(pairs, f"{bert}={reranker}", teachers=["lexical"], out=taught.folder, **RUN)


def test_an_expensive_teacher_is_asked_only_where_the_others_disagree(pairs):
    asked: list[tuple[str, str]] = []

    def expensive(given):
        asked.extend(given)
        return shared_words(given)

    calm, wild = np.linspace(0, 1, len(pairs)), np.linspace(0, 1, len(pairs))
    wild[[3, 40]] = wild[[40, 3]]
    others = [FunctionTeacher("calm", lambda _: calm), FunctionTeacher("wild", lambda _: wild)]
    labels = label(pairs, [Vote(FunctionTeacher("dear", expensive), ask=2 / len(pairs)), *others], scale="rank")
    rows = list(pairs.rows())
    assert asked == [rows[3][:2], rows[40][:2]]
    assert np.flatnonzero(~np.isnan(labels.by_teacher["dear"])).tolist() == [3, 40]
    assert list(labels.by_teacher) == ["dear", "calm", "wild"]


def test_only_pairs_that_teachers_agree_on_are_kept(pairs):
    calm, wild = np.linspace(0, 1, len(pairs)), np.linspace(0, 1, len(pairs))
    wild[[3, 40]] = wild[[40, 3]]
    labels = label(pairs, [FunctionTeacher("a", lambda _: calm), FunctionTeacher("b", lambda _: wild)])
    kept = agreed(labels, share=1 - 2 / len(pairs))
    assert len(kept) == len(pairs) - 2
    assert kept.pairs.hash == pairs.take([i for i in range(len(pairs)) if i not in (3, 40)]).hash


def test_a_function_whose_file_holds_something_else_there_has_a_fingerprint(tmp_path):
    place, names = tmp_path / "notebook.md", {}
    place.write_text("\n(it's\n", encoding="utf-8")
    exec(compile("\ndef score(pairs):\n    return [0.5 for _ in pairs]\n", str(place), "exec"), names)
    assert FunctionTeacher("one", names["score"]).fingerprint()["function"].endswith("score")


@pytest.mark.parametrize(
    ("scores", "match"),
    [([1.0], "shape"), ([float("nan")] * 96, "not a finite number"), ([0.5] * 96, "all 96 pairs the score 0.5")],
)
def test_what_a_function_must_not_return_is_refused(pairs, scores, match):
    with pytest.raises((DataError, RunError), match=match):
        label(pairs, [FunctionTeacher("f", lambda _: scores)])


def test_wording_scores_pairs_by_the_letters_they_share(dev):
    scores = WordingTeacher("lexical").score(dev)
    assert spearmanr(scores, dev.scores).statistic > 0.9


def test_matching_tokens_sees_the_words_that_two_texts_share(bert, dev):
    encoder = BiEncoder.load(bert)
    assert spearmanr(match_tokens(encoder, dev), dev.scores).statistic > 0.8
    same = PairSet.from_lists(dev.sentence1.to_pylist()[:4], dev.sentence1.to_pylist()[:4])
    np.testing.assert_allclose(match_tokens(encoder, same), 1.0, atol=1e-5)
    np.testing.assert_allclose(match_tokens(encoder, dev.swapped()), match_tokens(encoder, dev), atol=1e-5)


def test_a_reranker_keeps_its_order_and_gets_the_scale_of_the_labels(reranker, pairs):
    encoder = CrossEncoder.load(reranker)
    before = encoder.score(pairs)
    assert before.max() < 0.2
    order = spearmanr(np.arange(len(pairs)), before).statistic
    targets = (np.argsort(np.argsort(before)) + 0.5) / len(pairs)
    calibrate_to(encoder, pairs.with_scores(targets))
    after = encoder.score(pairs)
    assert spearmanr(np.arange(len(pairs)), after).statistic == pytest.approx(order, abs=1e-3)
    assert after.mean() == pytest.approx(0.5, abs=0.01)
    assert after.max() > 0.8


def test_calibration_never_turns_an_order_around():
    assert calibrated_line(np.arange(10.0), np.linspace(1, 0, 10))[0] == 0


def test_merged_weights_lie_between_start_and_student(bert, tiny_model):
    start, student = BiEncoder.load(bert), BiEncoder.load(bert)
    with torch.no_grad():
        for weight in student.model.parameters():
            weight.add_(1.0)
    merge_into(student, start, share=0.25)
    for new, old in zip(student.model.parameters(), start.model.parameters(), strict=True):
        torch.testing.assert_close(new, old + 0.25)
    with pytest.raises(ConfigurationError, match="cannot be merged"):
        merge_into(student, BiEncoder.load(tiny_model("bert", width=48)), share=0.5)


def test_a_run_delivers_merged_weights_and_says_so(taught, bert, pairs, tmp_path):
    whole = distil(pairs, str(bert), out=tmp_path / "whole", merge=1.0, **RUN)
    half = distil(pairs, str(bert), out=tmp_path / "half", merge=0.5, **RUN)
    old, new, mid = (BiEncoder.load(each).encode(["the old farmer"]) for each in (bert, whole.bi.name, half.bi.name))
    assert not np.allclose(new, mid, atol=1e-5)
    assert not np.allclose(old, mid, atol=1e-5)
    start, student, merged = (BiEncoder.load(each).model for each in (bert, whole.bi.name, half.bi.name))
    for a, b, c in zip(start.parameters(), student.parameters(), merged.parameters(), strict=True):
        torch.testing.assert_close(c, (a + b) / 2, atol=1e-6, rtol=0)
    assert json.loads((half.folder / "cycle-1/bert-32/bi/training.json").read_text())["merged"] == 0.5


def test_a_re_ranker_is_merged_with_what_it_learnt_and_a_new_head_is_not(bert, reranker, pairs, tmp_path):
    given = {**RUN, "merge": 1e-6}
    kept = distil(pairs, f"{bert}={reranker}", out=tmp_path / "kept", **given)
    before, after = (CrossEncoder.load(each).score(pairs) for each in (reranker, kept.cross.name))
    assert spearmanr(before, after).statistic > 0.999
    assert not np.allclose(before, after, atol=0.05), "its head was not calibrated"
    new = distil(pairs, str(bert), out=tmp_path / "new", **given)
    merged = {
        place: json.loads((folder / "cycle-1/bert-32/cross/training.json").read_text())["merged"]
        for place, folder in (("kept", kept.folder), ("new", new.folder))
    }
    assert merged == {"kept": 1e-6, "new": 1.0}


def test_teachers_are_written_as_spec_and_weight(tmp_path):
    config = make_config(["a/b"], overrides={"teachers": ["c/b=0.5", "lexical", {"spec": "tokens", "weight": 2}]})
    assert [(each.spec, each.weight, each.name) for each in config.teachers] == [
        ("c/b", 0.5, "b-2"),
        ("lexical", 1.0, "lexical"),
        ("tokens", 2.0, "tokens"),
    ]
    assert TeacherConfig.parse("org/model").weight == 1.0
    odd = tmp_path / "scores=2.csv"
    odd.touch()
    assert TeacherConfig.parse(str(odd)).spec == str(odd)


@pytest.mark.parametrize("teacher", ["lexical=much", "lexical=0", "lexical=-1", "=2"])
def test_a_weight_that_is_not_one_is_refused(teacher):
    with pytest.raises(ConfigurationError, match="teachers"):
        make_config(["a/b"], overrides={"teachers": [teacher]})


def test_a_function_cannot_be_named_without_being_given(bert, pairs, tmp_path):
    with pytest.raises(ConfigurationError, match="give the function itself"):
        distil(pairs, str(bert), teachers=["function:judge"], out=tmp_path / "run", **RUN)


def test_the_papers_presets_average_plainly_whatever_the_defaults_are(bert, roberta, pairs, tmp_path):
    """Raw scores, plain mean, one order, whole students: nothing of what strong starts get."""
    quick = {kind: {**TINY_RUN[kind], "epochs": 1} for kind in ("bi", "cross")}
    result = distil(
        pairs,
        [str(bert), str(roberta)],
        preset="paper-sts",
        cycles=1,
        selection="last",
        device="cpu",
        out=tmp_path / "run",
        **quick,
    )
    for kind in ("bi", "cross"):
        labels = labels_of(result, kind)
        total = np.zeros(len(labels), dtype=np.float64)
        for column in labels.by_teacher.values():
            total += column
        np.testing.assert_array_equal(labels.scores, (total / 2).astype(np.float32))
        assert "scale" not in labels.provenance
    cross = CrossEncoder.load(result.folder / "cycle-1/bert-32/cross")
    np.testing.assert_allclose(labels.by_teacher["bert-32"], cross.score(labels.pairs), atol=1e-6)
    assert json.loads((result.folder / "cycle-1/bert-32/bi/training.json").read_text())["merged"] == 1.0


def test_the_team_of_a_run_is_one_model_to_score_evaluate_and_label_with(taught, dev, tmp_path):
    saved = ensemble_run(taught.folder, out=tmp_path / "ensemble")
    assert [part.folder.name for part in saved.parts] == ["bert-32-bi", "bert-32-cross", "roberta-48", "reranker"]
    assert [part.weight for part in saved.parts] == [1.0, 1.0, 1.0, 0.5]
    scores = Ensemble.open(tmp_path / "ensemble").score(dev)
    assert 0 <= scores.min() < scores.max() <= 1
    # A pair's score does not depend on the pairs beside it.
    np.testing.assert_allclose(saved.score(dev.between(0, 5)), scores[:5], atol=1e-5)
    assert evaluate(tmp_path / "ensemble", dev).scores["pairs"] == measure(scores, TestSet("pairs", dev))
    labels = label(dev, [saved, WordingTeacher("lexical")], scale="rank")
    np.testing.assert_array_equal(next(iter(labels.by_teacher.values())), scores)


def test_models_that_use_different_ranges_count_alike_in_an_ensemble(bert, roberta, pairs, dev, tmp_path):
    encoders = [BiEncoder.load(bert), BiEncoder.load(roberta)]
    saved = save_ensemble([Voter("a", encoders[0]), Voter("b", encoders[1])], pairs, out=tmp_path / "ensemble")
    alone = [part.ranks(dev) for part in saved.parts]
    np.testing.assert_allclose(saved.score(dev), np.mean(alone, axis=0), atol=1e-6)
    for encoder, ranks in zip(encoders, alone, strict=True):
        assert spearmanr(encoder.score(dev), ranks).statistic > 0.98


def test_a_folder_of_anything_else_is_never_replaced_by_an_ensemble(bert, roberta, pairs, tmp_path):
    (tmp_path / "thesis.txt").write_text("ten years", encoding="utf-8")
    voters = [Voter("a", BiEncoder.load(bert)), Voter("b", BiEncoder.load(roberta))]
    for call in (lambda: save_ensemble(voters, pairs, out=tmp_path), lambda: ensemble_run(tmp_path, out=tmp_path)):
        with pytest.raises(ConfigurationError, match="holds no ensemble to replace"):
            call()
    assert (tmp_path / "thesis.txt").read_text(encoding="utf-8") == "ten years"
    for _ in range(2):
        assert len(save_ensemble(voters, pairs, out=tmp_path / "new").parts) == 2, "an ensemble is replaced"


def test_teachers_on_the_command_line(bert, roberta, pairs, tmp_path):
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    small = [
        f"--set={key}" for key in ("cycles=1", "device=cpu", "selection=last", "bi.epochs=1", "cross.batch_size=16")
    ]
    run = ["train", "--pairs", str(tmp_path / "pairs.jsonl"), "--model", str(bert), *small, "--json"]
    teachers = ["--teacher", f"{roberta}=0.5", "--teacher", "lexical", "--ask", "0.5", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, [*run, *teachers])
    assert result.exit_code == 0, result.output
    labels = PseudoLabels.open(tmp_path / "run/cycle-1/labels-bi.parquet")
    assert labels.provenance["weights"] == {"bert-32": 1.0, "roberta-48": 0.5, "lexical": 1.0}
    again = CliRunner().invoke(app, [*run[:-1], *teachers])
    assert f"best/bi to embed texts, {tmp_path / 'run'}" in again.output.replace("\n", " "), "what to ship"
    assert f"trans-encoder ensemble {tmp_path / 'run'} --out TEAM" in " ".join(again.output.split())
    saved = CliRunner().invoke(app, ["ensemble", str(tmp_path / "run"), "--out", str(tmp_path / "all"), "--json"])
    assert json.loads(saved.stdout)["models"] == {"bert-32-bi": 1.0, "bert-32-cross": 1.0, "roberta-48": 0.5}
    scored = CliRunner().invoke(
        app, ["score", str(tmp_path / "all"), "--pairs", str(tmp_path / "pairs.jsonl"), "--json"]
    )
    assert json.loads(scored.stdout)["kind"] == "ensemble"
    wrong = CliRunner().invoke(app, [*run, "--teacher", "lexical=none", "--out", str(tmp_path / "other")])
    assert wrong.exit_code == 2


def test_check_counts_what_teachers_cost(bert, roberta, reranker, pairs):
    config = make_config(
        [str(bert)], overrides={"teachers": [str(roberta), str(reranker), "lexical"], "ask": 0.5, **RUN}
    )
    stages = {stage.member: stage for stage in plan_run(config, pairs).stages if "as a teacher" in stage.name}
    assert {name: (stage.pairs, stage.cycles) for name, stage in stages.items()} == {
        "roberta-48": (len(pairs), 1),
        "reranker": (len(pairs) // 2, 1),
    }
