"""Choosing without labels: the exam, its signals, the judge, holding out, anchoring, stopping."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from conftest import TINY_RUN, contents, graded
from trans_encoder.config import make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.exam import LEVELS, Answers, heavy_edit, light_edit, make_exam, word_overlap
from trans_encoder.distill.run import Result, distil
from trans_encoder.distill.selection import (
    LEARNT,
    WEIGHTS,
    Candidate,
    LabelFreeJudge,
    choose,
    hold_out,
    idle_cycles,
)
from trans_encoder.distill.signals import SIGNALS, measure_signals, parts_for
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.evaluation.metrics import spearman
from trans_encoder.presets import PRESETS


class Scorer:
    """A teacher that knows the degree of likeness of every pair: the share of words in common, and noise."""

    kind = "bi"

    def __init__(self, name="exact", *, noise=0.0, sign=1):
        self.name, self.noise, self.sign = name, noise, sign

    def score(self, pairs):
        shares = [
            len(set(left.split()) & set(right.split())) / max(len(set(left.split()) | set(right.split())), 1)
            for left, right, _ in pairs.rows()
        ]
        random = np.random.default_rng(len(self.name))
        exact = self.sign * np.array(shares) + self.noise * random.normal(size=len(pairs))
        return np.clip(exact, -1, 1).astype(np.float32)


@pytest.fixture(scope="module")
def held_out():
    return graded(60, seed=9).without_scores()


@pytest.fixture(scope="module")
def exam(held_out):
    return make_exam(held_out, seed=3, parts=parts_for(SIGNALS))


@pytest.fixture(scope="module")
def judge(held_out):
    return LabelFreeJudge.of(held_out, seed=3)


def answers_of(exam, scorer, **known):
    return replace(exam.answers(scorer.score(exam.pairs)), **known)


def test_an_exam_is_the_same_for_the_same_seed(held_out, exam):
    assert make_exam(held_out, seed=3, parts=parts_for(SIGNALS)).pairs.hash == exam.pairs.hash
    assert make_exam(held_out, seed=4, parts=parts_for(SIGNALS)).pairs.hash != exam.pairs.hash


def part(exam, name):
    """Return the questions of a part, as pairs of texts."""
    sizes = list(exam.parts.values())
    begin = sum(sizes[: list(exam.parts).index(name)])
    return [(left, right) for left, right, _ in exam.pairs.take(range(begin, begin + exam.parts[name])).rows()]


def test_probes_are_a_sentence_against_more_and_more_damage(held_out, exam):
    rows = part(exam, "probes")
    count = len(rows) // len(LEVELS)
    itself, light, heavy, another = (rows[level * count : (level + 1) * count] for level in range(len(LEVELS)))
    known = set(held_out.distinct().sentences.to_pylist())
    assert all(left == right and left in known for left, right in itself)
    assert all(right != left and len(set(left.split()) - set(right.split())) <= 1 for left, right in light)
    assert all(len(set(left.split()) - set(right.split())) >= 2 for left, right in heavy)
    assert all(right != left and right in known for left, right in another)
    assert [left for left, _ in itself] == [left for left, _ in another]


def test_pairs_are_asked_swapped_and_edited(held_out, exam):
    pairs = [(left, right) for left, right, _ in held_out.rows()]
    assert part(exam, "plain") == pairs
    assert part(exam, "swapped") == [(right, left) for left, right in pairs]
    for (left, right), (edited, same) in zip(pairs, part(exam, "edited"), strict=True):
        assert same == right
        assert edited != left


def test_sentences_lose_their_commonest_and_their_rarest_word():
    pairs = PairSet.from_lists(["the cat saw the dog", "the dog ate the bone"], ["the fox ran off", "the cat ran off"])
    rows = part(make_exam(pairs, seed=0, parts={"losses"}), "losses")
    for (whole, uncommon), (same, unrare) in zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True):
        assert whole == same
        assert uncommon == whole.replace("the ", "", 1)
        assert unrare.split().count("the") == whole.split().count("the")


def test_an_exam_asks_no_more_than_its_signals_need(held_out):
    assert list(make_exam(held_out, seed=3, parts=parts_for(["teacher", "spread"])).parts) == ["plain"]
    answers = make_exam(held_out, seed=3, parts={"edited"}).answers(np.arange(2 * len(held_out), dtype=np.float32))
    measured = {name for name, value in measure_signals(answers).items() if value is not None}
    assert measured == {"overlap", "edit", "spread"}


def test_agreement_beyond_wording_is_a_partial_correlation(exam):
    exact = answers_of(exam, Scorer())
    random = np.random.default_rng(0).permutation(exact.plain)
    beyond = SIGNALS["start beyond overlap"].measure
    assert beyond(exact) is None
    assert beyond(replace(exact, start=exact.plain)) == pytest.approx(100)
    assert abs(beyond(replace(exact, start=random))) < 40
    assert beyond(replace(exact, start=exact.overlap)) == 0


@pytest.mark.parametrize("text", ["a dog runs over the wide green field", "心不全の患者を治療する薬剤", "heart attack"])
def test_edits_know_no_language(text):
    random = np.random.default_rng(0)
    for _ in range(8):
        light = light_edit(text, random=random)
        heavy = heavy_edit(text, other="she sings an old song", random=random)
        assert len(text) - 8 < len(light) <= len(text)
        assert heavy not in (text, light)
    assert light_edit("x", random=random) == "x"


def test_shared_wording_needs_no_white_space():
    same, near, far = word_overlap(["心不全の治療"] * 3, ["心不全の治療", "心不全の薬", "今日は晴れ"])
    assert same == pytest.approx(1)
    assert same > near > far


def test_the_better_of_two_encoders_has_the_better_signals(exam):
    exact, noisy = (answers_of(exam, Scorer(noise=noise)) for noise in (0.0, 0.3))
    for name in ("overlap", "probe order", "probe scale", "edit", "swap"):
        assert SIGNALS[name].measure(exact) > SIGNALS[name].measure(noisy), name


def test_agreements_are_rank_correlations_with_what_is_known(exam):
    exact, opposite = answers_of(exam, Scorer()), answers_of(exam, Scorer(sign=-1))
    for name in ("teacher", "partner", "others", "start"):
        assert SIGNALS[name].measure(exact) is None
        assert SIGNALS[name].measure(replace(exact, **{name: exact.plain})) == pytest.approx(100)
        assert SIGNALS[name].measure(replace(exact, **{name: opposite.plain})) == pytest.approx(-100)


def test_a_collapsed_encoder_has_no_good_signal(exam):
    constant = exam.answers(np.full(len(exam.pairs), 1.0, dtype=np.float32))
    expected = {"overlap": 0, "swap": 0, "edit": 0, "probe order": 50, "probe scale": 0}
    expected |= {"content": 50, "contrast": 0, "spread": 0}
    assert {name: value for name, value in measure_signals(constant).items() if value is not None} == pytest.approx(
        expected
    )


def test_spread_is_full_when_all_scores_are_used_alike():
    scores = np.linspace(0, 1, 200, dtype=np.float32)
    answers = Answers(scores, scores, probes=np.zeros((4, 2)))
    assert SIGNALS["spread"].measure(answers) == pytest.approx(100)
    assert SIGNALS["contrast"].measure(answers) == 100


def test_too_little_to_judge_by_is_said():
    with pytest.raises(DataError, match=r"1 held-out pairs.*selection=last"):
        make_exam(PairSet.from_lists(["one two three four"], ["five six seven eight"]), seed=0, parts={"plain"})
    with pytest.raises(DataError, match="too few or too short"):
        make_exam(PairSet.from_lists(["a", "b"], ["c", "d"]), seed=0, parts={"probes"})


def test_the_judge_prefers_the_better_encoder(judge):
    scores = [judge(Scorer(noise=noise)) for noise in (0.0, 0.2, 0.6)]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[-1] < scores[0] <= 100
    assert sum(each.weight for each in WEIGHTS.values()) == pytest.approx(1)
    assert WEIGHTS.keys() <= SIGNALS.keys()


def test_a_mean_of_noisy_encoders_is_judged_better_than_each(judge):
    team = [Scorer(name, noise=0.3) for name in ("one", "three")]
    assert judge.together(team) > max(judge(member) for member in team)


def test_judges_are_told_apart_and_can_be_sent_to_another_process(held_out, judge):
    assert LabelFreeJudge.of(held_out, seed=3).fingerprint == judge.fingerprint
    assert LabelFreeJudge.of(held_out, seed=4).fingerprint != judge.fingerprint
    sent = pickle.loads(pickle.dumps(judge))
    assert sent.fingerprint == judge.fingerprint
    assert sent(Scorer(noise=0.3)) == judge(Scorer(noise=0.3))


@pytest.mark.parametrize(("count", "expected"), [(20, 5), (96, 24), (300, 32), (1000, 50), (9000, 256)])
def test_a_few_of_the_pairs_are_held_out(count, expected):
    pairs = PairSet.from_lists([f"a{n}" for n in range(count)], [f"b{n}" for n in range(count)])
    split = hold_out(pairs, seed=1)
    assert (len(split.training), len(split.held_out)) == (count - expected, expected)
    assert len(split.training.without(split.held_out)) == len(split.training)
    assert hold_out(pairs, seed=1).held_out.hash == split.held_out.hash != hold_out(pairs, seed=2).held_out.hash


def test_no_held_out_pair_is_trained_on_in_either_order():
    pairs = PairSet.from_lists(["a", "b", "c", "d"] * 2, ["b", "a", "d", "c"] * 2)
    split = hold_out(pairs, seed=0, number=1)
    assert len(split.training) == 4


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
    history = [json.loads(line) for line in (label_free / "history.jsonl").read_text().splitlines()]
    for kind, encoder in (("bi", result.bi), ("cross", result.cross)):
        trainings = {line["cycle"]: line["score"] for line in history if line["kind"] == kind}  # the last of each
        assert member.chosen(kind).score == max(trainings.values()) == pytest.approx(judge(encoder))
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


def test_an_exam_costs_little(bert, judge):
    """It has a tenth of the pairs, or fewer, that a cross-encoder is trained on between two judgements."""
    many = PairSet.from_lists([f"one two three {n}" for n in range(9000)], [f"five six {n} eight" for n in range(9000)])
    plan, questions = make_config(["a"]).cross, LabelFreeJudge.of(hold_out(many, seed=0).held_out, seed=0).pairs
    assert len(questions) <= plan.dev_steps * plan.batch_size / 10
    assert isinstance(judge(CrossEncoder.load(bert)), float)
