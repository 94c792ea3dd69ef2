"""Choosing without labels: the probes, the judge, holding out, stopping."""

import json
import pickle

import numpy as np
import pytest
from typer.testing import CliRunner

from conftest import TINY_RUN, WordOverlap, contents, graded
from trans_encoder.cli import app
from trans_encoder.config import PRESETS, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import TestSet
from trans_encoder.data.wording import shared_wording
from trans_encoder.distill.judges import (
    WEIGHTS,
    Comparison,
    DevJudge,
    LabelFreeJudge,
    hold_out,
    light_edit,
)
from trans_encoder.distill.run import Result
from trans_encoder.distill.selection import LEARNT, Candidate, Verdict, choose, choose_by_views, idle_cycles, verdict_of
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.evaluation.metrics import spearman
from trans_encoder.pipelines.distil import distil
from trans_encoder.runs.records import Evidence
from trans_encoder.teachers.views import weigh_views


@pytest.fixture(scope="module")
def judge(held_out):
    return LabelFreeJudge.of(held_out, seed=3)


def test_probes_are_the_pairs_as_they_are_and_lightly_edited(held_out):
    judge = LabelFreeJudge.of(held_out, seed=3)
    asked = [(left, right) for left, right, _ in judge.pairs.rows()]
    pairs = [(left, right) for left, right, _ in held_out.rows()]
    assert asked[: len(pairs)] == pairs
    assert judge.held_out.hash == held_out.hash
    for (left, right), (edited, same) in zip(pairs, asked[len(pairs) :], strict=True):
        assert same == right
        assert edited != left
    assert (
        LabelFreeJudge.of(held_out, seed=3).pairs.hash
        == judge.pairs.hash
        != LabelFreeJudge.of(held_out, seed=4).pairs.hash
    )


@pytest.mark.parametrize("text", ["a dog runs over the wide green field", "心不全の患者を治療する薬剤", "heart attack"])
def test_edits_know_no_language(text):
    random = np.random.default_rng(0)
    assert all(len(text) - 8 < len(light_edit(text, random=random)) <= len(text) for _ in range(8))
    assert light_edit("x", random=random) == "x"


def test_an_encoder_that_scores_all_pairs_alike_gets_nothing(judge):
    assert judge.rate(np.full(len(judge.pairs), 0.7, dtype=np.float32)) == 0


def test_too_little_to_judge_by_is_said():
    with pytest.raises(DataError, match=r"1 held-out pairs.*selection=last"):
        LabelFreeJudge.of(PairSet.from_lists(["one two three four"], ["five six seven eight"]), seed=0)


def compared(judge, **known):
    given = {"kind": "bi", "start": 60.0, "kept": 70.0, "agreement": LEARNT, "supervised": False, **known}
    return judge.compare(Comparison(**given))


def test_without_labels_better_is_said_only_of_starts_below_the_lexical_floor(judge):
    floor = judge.floor()
    assert 50 < floor <= 100
    assert compared(judge) is Verdict.BETTER
    assert compared(judge, kept=50.0) is Verdict.NOT_BETTER
    assert compared(judge, start=floor, kept=floor + 1) is Verdict.NOT_KNOWN
    assert compared(judge, supervised=True) is Verdict.NOT_KNOWN
    assert compared(judge, kind="cross") is Verdict.BETTER
    assert compared(judge, kind="cross", agreement=LEARNT - 1) is Verdict.NOT_BETTER
    assert compared(judge, kind="cross", start=floor) is Verdict.NOT_KNOWN
    assert compared(judge, kind="cross", start=floor, agreement=LEARNT - 1) is Verdict.NOT_BETTER, "than any start"
    assert compared(judge, kind="cross", supervised=True, agreement=LEARNT - 1) is Verdict.NOT_BETTER
    assert [verdict.helped for verdict in Verdict] == [True, False, None]


def test_with_labels_every_start_is_compared(dev):
    judge = DevJudge(TestSet("dev", dev))
    assert judge.floor() is None
    assert compared(judge, supervised=True) is Verdict.BETTER
    assert compared(judge, kept=60.0) is Verdict.NOT_BETTER


def test_wording_is_its_own_floor(held_out, judge):
    """The floor is what TF-IDF itself would be given as an encoder, measured on the pairs of the run."""
    other = LabelFreeJudge.of(graded(60, seed=10).without_scores(), seed=3)
    assert judge.floor() == judge.rate(judge.overlap) != other.floor()


def test_shared_wording_needs_no_white_space():
    same, near, far = shared_wording(["心不全の治療"] * 3, ["心不全の治療", "心不全の薬", "今日は晴れ"])
    assert same == pytest.approx(1)
    assert same > near > far


def test_the_judge_prefers_the_better_encoder(judge):
    scores = [judge(WordOverlap(noise=noise)) for noise in (0.0, 0.2, 0.6)]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[-1] < scores[0] <= 100
    assert sum(WEIGHTS.values()) == pytest.approx(1)


def test_a_mean_of_noisy_encoders_is_judged_better_than_each(judge):
    team = [WordOverlap(name, noise=0.3) for name in ("one", "three")]
    assert judge.together(team) > max(judge(member) for member in team)


def test_judges_are_told_apart_and_can_be_sent_to_another_process(held_out, judge):
    assert LabelFreeJudge.of(held_out, seed=3).fingerprint == judge.fingerprint
    assert LabelFreeJudge.of(held_out, seed=4).fingerprint != judge.fingerprint
    sent = pickle.loads(pickle.dumps(judge))
    assert sent.fingerprint == judge.fingerprint
    assert sent(WordOverlap(noise=0.3)) == judge(WordOverlap(noise=0.3))


@pytest.mark.parametrize(("count", "expected"), [(20, 5), (96, 24), (300, 32), (1000, 50), (9000, 256)])
def test_a_few_of_the_pairs_are_held_out(count, expected):
    pairs = PairSet.from_lists([f"a{n}" for n in range(count)], [f"b{n}" for n in range(count)])
    split = hold_out(pairs, seed=1)
    assert (len(split.training), len(split.held_out)) == (count - expected, expected)
    assert len(split.training.without(split.held_out)) == len(split.training)
    assert hold_out(pairs, seed=1).held_out.hash == split.held_out.hash != hold_out(pairs, seed=2).held_out.hash


@pytest.mark.parametrize("command", ["check", "train"])
def test_identical_pairs_are_refused_in_one_sentence(bert, tmp_path, command):
    (tmp_path / "pairs.tsv").write_text("a\tb\n" + "the cat sleeps\tthe dog runs\n" * 8)
    given = [command, "--pairs", tmp_path / "pairs.tsv", "--model", bert, "--out", tmp_path / "run"]
    done = CliRunner().invoke(app, [str(each) for each in given])
    assert done.exit_code == 2
    assert "all 8 pairs have the same two texts; give pairs that differ" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_no_held_out_pair_is_trained_on_in_either_order():
    pairs = PairSet.from_lists(["a", "b", "c", "d"], ["b", "a", "d", "c"])
    split = hold_out(pairs, seed=0)
    assert (len(split.training), len(split.held_out)) == (2, 1)


def test_idle_cycles_are_counted_from_the_last_gain():
    def idle(*scores):
        return idle_cycles([Candidate(model=None, cycle=n, step=0, score=score) for n, score in enumerate(scores)])

    assert [idle(5.0, 6.0), idle(5.0, 5.0), idle(5.0, 6.0, 5.5), idle(5.0, 4.0, 4.5)] == [0, 1, 1, 2]
    assert idle(None, None, None) == 0


def test_paper_presets_never_stop_early():
    for preset in PRESETS:
        assert make_config(["a"], preset=preset).patience == (0 if preset.startswith("paper") else 1)


@pytest.mark.parametrize("value", [1, -0.1, "much", "auto", []])
def test_an_anchor_that_is_no_weight_is_refused(value):
    with pytest.raises(ConfigurationError, match=r"anchor: given .*, must be"):
        make_config(["a"], overrides={"anchor": value})


@pytest.fixture(scope="module")
def label_free(tmp_path_factory, bert, pairs):
    """A finished run without a dev set. Do not change it."""
    folder = tmp_path_factory.mktemp("label-free")
    return distil(pairs, str(bert), out=folder, **TINY_RUN).folder


def test_without_a_dev_set_the_label_free_score_chooses(label_free, pairs):
    result = Result.open(label_free)
    member = result.members["bert-32"]
    training, held_out = hold_out(pairs, seed=42)
    assert PairSet.open(label_free / "pairs.arrow").hash == training.hash
    judge = LabelFreeJudge.of(held_out, seed=42)
    assert result.metric == judge.name

    def agreement(cycle, kind):
        return json.loads((label_free / f"cycle-{cycle}" / "bert-32" / kind / "training.json").read_text())["agreement"]

    history = [json.loads(line) for line in (label_free / "history.jsonl").read_text().splitlines()]
    for kind, encoder in (("bi", result.bi), ("cross", result.cross)):
        scores = {line["cycle"]: line["score"] for line in history if line["kind"] == kind}  # the last of each cycle
        learnt = {cycle: agreement(cycle, kind) >= LEARNT for cycle in scores if cycle > 0}
        eligible = [score for cycle, score in scores.items() if learnt.get(cycle, True)]
        expected = max(eligible) if eligible else scores[1]  # of cross-encoders that have not learnt, the first
        assert member.chosen(kind).score == expected == pytest.approx(judge(encoder))
        cycle = member.chosen(kind).cycle or 1
        training = json.loads((label_free / f"cycle-{cycle}" / "bert-32" / kind / "training.json").read_text())
        assert training["best_step"] == training["history"][-1]["step"]
        card = (label_free / "best" / kind / "README.md").read_text()
        assert "Score (label-free score x100 on held-out pairs)" in card
    assert "label-free score" in result.summary
    assert any("24 of 96 pairs were held out" in note for note in result.notes)


def test_a_student_is_asked_what_it_has_learnt(label_free, bert, pairs):
    judge = LabelFreeJudge.of(hold_out(pairs, seed=42).held_out, seed=42)
    held_out = hold_out(pairs, seed=42).held_out
    folders = {kind: label_free / "cycle-1" / "bert-32" / kind for kind in ("bi", "cross")}
    teacher, student = BiEncoder.load(bert), CrossEncoder.load(folders["cross"])
    agreement = json.loads((folders["cross"] / "training.json").read_text())["agreement"]
    assert agreement == pytest.approx(judge.agreement(student, [teacher]))
    assert agreement == pytest.approx(spearman(student.score(held_out), teacher.score(held_out)), abs=1e-3)


def test_who_has_not_learnt_is_not_better_than_the_start():
    def chosen(*candidates):
        return choose([Candidate(None, cycle, 0, score, learnt) for cycle, (score, learnt) in enumerate(candidates)])

    assert chosen((80.0, None), (90.0, LEARNT - 1)).cycle == 0
    assert chosen((80.0, None), (90.0, LEARNT)).cycle == 1
    assert chosen((80.0, None), (90.0, LEARNT - 1), (85.0, LEARNT)).cycle == 2
    assert chosen((90.0, LEARNT - 1), (80.0, LEARNT)).cycle == 1  # cross-encoders have no start among them
    assert chosen((80.0, LEARNT - 1), (90.0, LEARNT - 1)).cycle == 0


def test_a_run_says_who_has_not_learnt(label_free):
    result = Result.open(label_free)
    told = [note for note in result.notes if "has not learnt its teachers' order" in note]
    trainings = [json.loads(path.read_text()) for path in label_free.glob("cycle-*/*/*/training.json")]
    assert len(told) == sum(training["agreement"] < LEARNT for training in trainings) > 0
    cross = result.members["bert-32"].cross
    assert cross.helped == (cross.agreement >= LEARNT) == result.helped["cross"]
    assert f"agreement with the teachers {cross.agreement:.2f} on held-out pairs" in result.summary


def test_the_same_run_again_gives_the_same_and_does_nothing(label_free, bert, pairs, tmp_path):
    before = contents(label_free)
    distil(pairs, str(bert), out=label_free, **TINY_RUN)
    assert contents(label_free) == before
    again = distil(pairs, str(bert), out=tmp_path, **TINY_RUN)
    assert contents(again.folder) == before


def test_a_start_that_the_signals_prefer_is_kept(bert, pairs, tmp_path):
    harmful = {**TINY_RUN, "bi": {**TINY_RUN["bi"], "learning_rate": 0.3, "epochs": 1}, "patience": 1}
    result = distil(pairs, str(bert), out=tmp_path, formulation="bi", **harmful)
    assert (result.members["bert-32"].bi.cycle, result.helped) == (0, {"bi": False})
    assert result.summary.startswith("It did not help the bi-encoder: the start (label-free score")
    np.testing.assert_allclose(result.bi.score(pairs), BiEncoder.load(bert).score(pairs), atol=1e-6)
    assert result.cycles == 1
    assert not (tmp_path / "cycle-2").exists()
    assert any(note.startswith("stopped after cycle 1 of 2") for note in result.notes)


def test_a_dev_set_decides_when_there_is_one(mutual):
    result = Result.open(mutual)
    assert (result.metric, result.cycles) == ("spearman", 2)


def scorers(*loadings, seed=0):
    """Return a truth and scorers that follow it more or less closely, each with errors of its own."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=500)
    return truth, [each * truth + np.sqrt(1 - each**2) * random.normal(size=500) for each in loadings]


def weighed(student, start, *views):
    return weigh_views(start, student, {str(place): view for place, view in enumerate(views)})


def test_views_see_that_a_student_of_good_views_is_better_and_by_how_much():
    truth, (start, one, two) = scorers(0.8, 0.8, 0.85)
    student = 2 * start + one + two
    found = weighed(student, start, one, two)
    gain = spearman(student, truth) - spearman(start, truth)
    assert verdict_of(found) is Verdict.BETTER
    assert found.low < gain < found.high
    assert (found.pairs, found.views) == (500, ("0", "1"))


def test_views_see_that_a_student_which_learnt_noise_is_worse():
    _, (start, one, two, noise) = scorers(0.8, 0.8, 0.85, 0.0)
    assert verdict_of(weighed(start + 0.7 * noise, start, one, two)) is Verdict.NOT_BETTER


def test_views_that_are_poor_do_not_praise_a_student_that_imitates_them():
    """It agrees with both of them more than its start does, and is worse."""
    truth, (start, one, two) = scorers(0.95, 0.4, 0.4)
    student = start + 1.5 * one + 1.5 * two
    assert spearman(student, truth) < spearman(start, truth)
    for view in (one, two):
        assert spearman(student, view) > spearman(start, view)
    assert verdict_of(weighed(student, start, one, two)) is Verdict.NOT_BETTER


def test_without_two_whole_views_nothing_is_known():
    _, (start, one, two) = scorers(0.8, 0.8, 0.85)
    assert weighed(start + one, start, one) is None
    assert weighed(start + one, start, one, np.where(two > 0, two, np.nan)) is None
    assert verdict_of(None) is verdict_of(weighed(start, start, one, two)) is Verdict.NOT_KNOWN


def test_a_copy_of_the_start_or_of_a_view_is_no_second_opinion():
    _, (start, one, two) = scorers(0.8, 0.8, 0.85)
    assert weighed(start + one, start, one, start.copy()) is None
    assert weighed(start + one, start, one, 3 * one) is None
    assert weighed(start + one, start, one, start.copy(), two).views == ("0", "2")


def test_views_choose_the_student_that_is_most_clearly_better():
    def chosen(*gains, else_start):
        found = [Evidence(gain=gain, low=gain - 1, high=gain + 1, pairs=9, views=("a", "b")) for gain in gains]
        trained = [Candidate(None, cycle, 0, 90.0, None, each) for cycle, each in enumerate(found, start=1)]
        return choose_by_views(Candidate(None, 0, 0, 80.0), trained, else_start=else_start).cycle

    assert chosen(5.0, 9.0, 7.0, else_start=True) == 2
    assert chosen(0.0, else_start=True) == chosen(-9.0, else_start=True) == chosen(-9.0, else_start=False) == 0
    assert chosen(0.0, else_start=False) == 1  # of a weak start the label-free score decides where views do not
