"""A first cycle that learns from a share of the pairs."""

import json

import pytest

from conftest import TINY_RUN, contents
from killing import killed, killed_until_it_ends
from trans_encoder.config import PRESETS, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import TestSet
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.distill.run import first_pairs
from trans_encoder.pipelines.distil import distil
from trans_encoder.pipelines.planning import plan_run


@pytest.fixture(scope="module")
def shared(bert, roberta, pairs, dev, tmp_path_factory):
    """A run whose first cycle has a quarter of the pairs, beside a frozen teacher."""
    folder = tmp_path_factory.mktemp("shared") / "run"
    settings = {**TINY_RUN, "first_share": 0.25, "scale": "rank", "anchor": 0.3, "cycles": 3}

    def again(place):
        return distil(pairs, str(bert), dev=dev, teachers=["lexical", str(roberta)], out=place, **settings)

    again(folder)
    return folder, again


def test_a_first_cycle_of_a_share_of_the_pairs_is_followed_by_cycles_of_all(shared, pairs):
    folder, _ = shared
    some, every = (PairSet.open(folder / name) for name in ("pairs.arrow", "cycle-2/pairs.arrow"))
    assert len(some) == round(len(pairs) / 4)
    assert every.hash == pairs.without_scores().hash
    assert len(some.without(every)) == 0
    for name, expected in (
        ("cycle-1/labels-cross", some),
        ("cycle-2/labels-bi", every),
        ("cycle-3/labels-cross", every),
    ):
        assert PseudoLabels.open(folder / f"{name}.parquet").pairs.hash == expected.hash
    assert not (folder / "cycle-3" / "start-labels.parquet").exists(), "those of the second cycle serve"
    learnt = [json.loads((folder / f"cycle-{n}/bert-32/bi/training.json").read_text())["labels"] for n in (1, 2, 3)]
    assert learnt == [len(some), len(pairs), len(pairs)]
    notes = json.loads((folder / "result.json").read_text())["notes"]
    assert f"cycle 1 learnt from {len(some)} of {len(pairs)} pairs (first_share)" in notes


def test_a_run_with_a_small_first_cycle_that_is_killed_ends_the_same(shared, tmp_path):
    folder, again = shared
    assert killed_until_it_ends(again, tmp_path / "run", write=14) >= 3
    assert contents(tmp_path / "run") == contents(folder)
    for place in ("cycle-2/pairs.arrow", "cycle-2/start-labels.parquet"):
        assert killed(again, tmp_path / place, place=place, after=True)
        again(tmp_path / place)
        assert contents(tmp_path / place) == contents(folder)


def test_a_small_first_cycle_without_a_gain_does_not_end_the_run(bert, pairs, dev, tmp_path):
    still = {"cross": {**TINY_RUN["cross"], "learning_rate": 1e-12}, "bi": {**TINY_RUN["bi"], "learning_rate": 1e-12}}
    settings = {**TINY_RUN, **still, "first_share": 0.25, "patience": 1, "cycles": 3, "formulation": "bi"}
    result = distil(pairs, str(bert), dev=dev, out=tmp_path / "run", **settings)
    assert result.cycles == 2


def test_a_plan_counts_the_share_of_the_first_cycle(bert, pairs, dev):
    config = make_config([str(bert)], overrides={**TINY_RUN, "first_share": 0.25, "cycles": 3})
    plan = plan_run(config, pairs, dev=TestSet("dev", dev))
    assert plan.seconds == pytest.approx(2.25 * sum(stage.seconds for stage in plan.stages))


def test_one_cycle_and_mined_pairs_are_never_a_share(pairs):
    several = make_config(["model"], overrides={"first_share": 0.25, "cycles": 2})
    assert first_pairs(several.model_copy(update={"cycles": 1}), pairs, miner=None) == (pairs, None)
    assert first_pairs(several, pairs, miner=object()) == (pairs, None)
    assert len(first_pairs(several, pairs, miner=None)[0]) == round(len(pairs) / 4)


@pytest.mark.parametrize("preset", [name for name in PRESETS if name.startswith("paper")])
def test_the_papers_presets_have_all_pairs_in_every_cycle(preset):
    assert make_config(["model"], preset=preset).first_share == 1
