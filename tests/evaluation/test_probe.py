"""The flip test: rules that change what a text means, and figures that tell whether a model sees it."""

import json
from random import Random

import numpy as np
import pytest
from typer.testing import CliRunner

from trans_encoder.cli import app
from trans_encoder.encoders import load_encoder
from trans_encoder.errors import DataError
from trans_encoder.evaluation.flips import KINDS, make_flips, paraphrased, written_flips
from trans_encoder.evaluation.probe import probe


class Judge:
    """Scores pairs by a function of the two texts."""

    kind, name = "bi", "judge"

    def __init__(self, rate):
        self.rate = rate

    def score(self, pairs):
        both = zip(pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist(), strict=True)
        return np.array([self.rate(*pair) for pair in both], dtype=np.float32)


def flips_of(text, kind):
    return [case.flip for case in make_flips([text]) if case.kind == kind]


@pytest.mark.parametrize(
    ("kind", "text", "flip"),
    [
        ("negation", "The flight was cancelled.", "The flight was not cancelled."),
        ("negation", "The flight was not cancelled.", "The flight was cancelled."),
        ("negation", "It doesn't work.", "It does work."),
        ("negation", "I cannot log in.", "I can log in."),
        ("roles", "We sail from Dover to Calais.", "We sail from Calais to Dover."),
        ("roles", "Anna paid Peter in cash.", "Peter paid Anna in cash."),
        ("units", "It weighs 5 kg.", "It weighs 5 g."),
        ("units", "It costs $20.", "It costs €20."),
    ],
)
def test_a_rule_changes_what_a_text_means(kind, text, flip):
    assert flips_of(text, kind) == [flip]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("negation", "Was it cancelled?"),
        ("negation", "There is nothing that is not here."),
        ("roles", "Anna and Peter paid."),
        ("numbers", "No figure is named here."),
        ("names", "Nothing has a name here."),
        ("units", "The days are long."),
    ],
)
def test_a_rule_leaves_alone_what_it_cannot_change_for_sure(kind, text):
    assert flips_of(text, kind) == []


def test_numbers_and_names_become_others_that_the_text_does_not_hold():
    text = "On Friday 48 guests came to Oslo, said Maria."
    for seed in range(20):
        made = {
            case.kind: case.flip
            for case in make_flips(["They met Peter in Rome.", text], seed=seed)
            if case.text == text
        }
        for kind in ("numbers", "names"):
            pairs = zip(text.split(), made[kind].split(), strict=True)
            ((before, after),) = (pair for pair in pairs if pair[0] != pair[1])
            assert after.strip(",.") not in text
            assert before.isdigit() == after.isdigit() == (kind == "numbers")


def test_a_paraphrase_keeps_numbers_and_negations_and_differs():
    for seed in range(10):
        for text in ("The error is not fixed in 2.4.", "Anna paid 5 euros.", "We cannot delete every photo."):
            other = paraphrased(text, Random(seed))
            assert other != text
            assert [word for word in other.split() if word[0].isdigit()] == [
                word for word in text.split() if word[0].isdigit()
            ]
            assert ("not" in other or "n't" in other) == ("not" in text)


def test_the_same_seed_makes_the_same_cases_and_no_more_than_asked():
    texts = [f"The bill of client {number} is paid." for number in range(30)]
    assert make_flips(texts, limit=7, seed=3) == make_flips(texts, limit=7, seed=3)
    assert make_flips(texts, limit=7, seed=3) != make_flips(texts, limit=7, seed=4)
    assert sum(case.kind == "numbers" for case in make_flips(texts, limit=7)) == 7


def test_the_written_cases_are_whole_and_cover_every_kind():
    cases = written_flips()
    assert {case.kind for case in cases} == set(KINDS)
    for case in cases:
        assert len({case.text, case.paraphrase, case.flip}) == 3
    assert len({case.text for case in cases}) == len(cases)


def test_the_figures_tell_a_judge_that_sees_flips_from_one_that_does_not():
    flips = {(case.text, case.flip) for case in written_flips()}
    sharp, blind = probe(Judge(lambda *pair: pair not in flips)), probe(Judge(lambda *pair: pair in flips))
    for kind in (*KINDS, "all"):
        assert (sharp.written[kind].right, sharp.written[kind].auc) == (100, 100)
        assert (blind.written[kind].right, blind.written[kind].auc) == (0, 0)
    assert (sharp.written["all"].paraphrase, sharp.written["all"].flip) == (1, 0)
    tied = probe(Judge(lambda *pair: 0.5)).written["all"]
    assert (tied.right, tied.auc) == (50, 50)
    assert sharp.own == {}


def test_cases_of_the_own_text_are_counted_apart():
    result = probe(Judge(lambda *pair: pair[0] == pair[1]), texts=["The flight was cancelled.", "It weighs 5 kg."])
    assert {kind: figure.cases for kind, figure in result.own.items()} == {
        "negation": 1, "numbers": 1, "units": 1, "all": 3,
    }  # fmt: skip


def test_a_text_that_no_rule_fits_is_refused():
    with pytest.raises(DataError, match="no rule could change any of the 1 texts"):
        probe(Judge(lambda *pair: 1.0), texts=["hm"])


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_the_command_probes_both_kinds_of_encoder(bert, tmp_path, kind):
    load_encoder(bert, kind=kind).save(tmp_path / "model")
    (tmp_path / "text.txt").write_text("The old farmer was not here at all.\nThe red lamp weighs 12 kg today.\n")
    arguments = ["probe", str(tmp_path / "model"), "--text", str(tmp_path / "text.txt"), "--line", "sentence"]
    told = CliRunner().invoke(app, [*arguments, "--json"])
    assert told.exit_code == 0, told.output
    result = json.loads(told.stdout)
    assert result["kind"] == kind
    assert result["written"]["all"]["cases"] == len(written_flips())
    assert set(result["own"]) == {"negation", "numbers", "units", "all"}
    shown = CliRunner().invoke(app, ["probe", str(tmp_path / "model")])
    assert "hand-written, negation" in shown.stdout
