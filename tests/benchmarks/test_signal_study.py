"""The signals of benchmarks/signals.py and the probes that they need."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import WordOverlap
from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.judges import light_edit

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from probes import LEVELS, ProbeScores, heavy_edit, make_probe_set
from signals import SIGNALS, measure_signals, parts_for


@pytest.fixture(scope="module")
def probes(held_out):
    return make_probe_set(held_out, seed=3, parts=parts_for(SIGNALS))


def part(probes, name):
    """Return the pairs of a part, as pairs of texts."""
    sizes = list(probes.parts.values())
    begin = sum(sizes[: list(probes.parts).index(name)])
    return [(left, right) for left, right, _ in probes.pairs.take(range(begin, begin + probes.parts[name])).rows()]


def test_probes_are_a_sentence_against_more_and_more_damage(held_out, probes):
    rows = part(probes, "probes")
    count = len(rows) // len(LEVELS)
    itself, light, heavy, another = (rows[level * count : (level + 1) * count] for level in range(len(LEVELS)))
    known = set(held_out.distinct().sentences.to_pylist())
    assert all(left == right and left in known for left, right in itself)
    assert all(right != left and len(set(left.split()) - set(right.split())) <= 1 for left, right in light)
    assert all(len(set(left.split()) - set(right.split())) >= 2 for left, right in heavy)
    assert all(right != left and right in known for left, right in another)
    assert [left for left, _ in itself] == [left for left, _ in another]


def test_pairs_are_asked_swapped_and_edited(held_out, probes):
    pairs = [(left, right) for left, right, _ in held_out.rows()]
    assert part(probes, "plain") == pairs
    assert part(probes, "swapped") == [(right, left) for left, right in pairs]
    for (left, right), (edited, same) in zip(pairs, part(probes, "edited"), strict=True):
        assert same == right
        assert edited != left


def test_sentences_lose_their_commonest_and_their_rarest_word():
    pairs = PairSet.from_lists(["the cat saw the dog", "the dog ate the bone"], ["the fox ran off", "the cat ran off"])
    rows = part(make_probe_set(pairs, seed=0, parts={"losses"}), "losses")
    for (whole, uncommon), (same, unrare) in zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True):
        assert whole == same
        assert uncommon == whole.replace("the ", "", 1)
        assert unrare.split().count("the") == whole.split().count("the")


def test_probes_are_no_more_than_its_signals_need(held_out):
    assert list(make_probe_set(held_out, seed=3, parts=parts_for(["teacher", "spread"])).parts) == ["plain"]
    probed = make_probe_set(held_out, seed=3, parts={"edited"}).split(np.arange(2 * len(held_out), dtype=np.float32))
    measured = {name for name, value in measure_signals(probed).items() if value is not None}
    assert measured == {"overlap", "edit", "spread"}


def test_agreement_beyond_wording_is_a_partial_correlation(probes):
    exact = scores_of(probes, WordOverlap())
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


def test_the_better_of_two_encoders_has_the_better_signals(probes):
    exact, noisy = (scores_of(probes, WordOverlap(noise=noise)) for noise in (0.0, 0.3))
    for name in ("overlap", "probe order", "probe scale", "edit", "swap"):
        assert SIGNALS[name].measure(exact) > SIGNALS[name].measure(noisy), name


def test_agreements_are_rank_correlations_with_what_is_known(probes):
    exact, opposite = scores_of(probes, WordOverlap()), scores_of(probes, WordOverlap(sign=-1))
    for name in ("teacher", "partner", "others", "start"):
        assert SIGNALS[name].measure(exact) is None
        assert SIGNALS[name].measure(replace(exact, **{name: exact.plain})) == pytest.approx(100)
        assert SIGNALS[name].measure(replace(exact, **{name: opposite.plain})) == pytest.approx(-100)


def test_a_collapsed_encoder_has_no_good_signal(probes):
    constant = probes.split(np.full(len(probes.pairs), 1.0, dtype=np.float32))
    expected = {"overlap": 0, "swap": 0, "edit": 0, "probe order": 50, "probe scale": 0}
    expected |= {"content": 50, "contrast": 0, "spread": 0}
    assert {name: value for name, value in measure_signals(constant).items() if value is not None} == pytest.approx(
        expected
    )


def test_spread_is_full_when_all_scores_are_used_alike():
    scores = np.linspace(0, 1, 200, dtype=np.float32)
    probed = ProbeScores(scores, scores, probes=np.zeros((4, 2)))
    assert SIGNALS["spread"].measure(probed) == pytest.approx(100)
    assert SIGNALS["contrast"].measure(probed) == 100


def scores_of(probes, scorer, **known):
    return replace(probes.split(scorer.score(probes.pairs)), **known)
