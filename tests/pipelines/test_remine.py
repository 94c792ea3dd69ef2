"""Pairs that later cycles mine again: which they are, who learns from them, and that a killed run ends the same."""

import json
import pickle

import numpy as np
import pytest
from typer.testing import CliRunner

from conftest import TINY_RUN, contents
from killing import killed, killed_until_it_ends
from trans_encoder import BiEncoder, PairSet, PseudoLabels, Text, distil, write_report
from trans_encoder.cli import app
from trans_encoder.config import make_config
from trans_encoder.data.tasks import TestSet
from trans_encoder.errors import ConfigurationError, RunError
from trans_encoder.mining import Mix
from trans_encoder.pipelines.from_text import TextMiner
from trans_encoder.pipelines.planning import plan_run
from trans_encoder.teachers import ModelRef

SETTINGS = {**TINY_RUN, "anchor": 0.25}


@pytest.fixture(scope="module")
def again(start, corpus):
    """Return a function that does the remined run in a folder, with changes if given."""

    def run(out, **changes):
        given = {"pairs": 60, "remine": True, **SETTINGS, **changes}
        return distil(Text.read(corpus), f"{start}={start}", out=out, **given)

    return run


@pytest.fixture(scope="module")
def run(again, tmp_path_factory):
    """A finished remined run. Do not change it."""
    return again(tmp_path_factory.mktemp("remined") / "run").folder


def keys(pairs):
    return {frozenset(row[:2]) for row in pairs.rows()}


def test_the_run_folder_is_exactly_as_documented(run):
    files = {file for file in contents(run) if not file.startswith(("best/", "cycle-1/start/", "cycle-2/start/"))}
    assert files == {
        *("config.json", "environment.json", "history.jsonl", "pairs.arrow", "result.json", "start.json"),
        *(
            f"from-text/pairs/{file}"
            for file in ("config.json", "mined/mining.json", "mined/pairs.arrow", "text.arrow")
        ),
        *(f"cycle-{cycle}/labels-{kind}.parquet" for cycle in (1, 2) for kind in ("bi", "cross")),
        *("cycle-2/pairs.arrow", "cycle-2/start-labels.parquet"),
    }


def test_new_pairs_are_others_and_none_of_them_is_held_out(run):
    mined = PairSet.open(run / "from-text" / "pairs" / "mined" / "pairs.arrow")
    first, second = PairSet.open(run / "pairs.arrow"), PairSet.open(run / "cycle-2" / "pairs.arrow")
    held_out = keys(mined) - keys(first)
    assert len(held_out) == 15
    assert not held_out & keys(second)
    assert 45 <= len(second) <= 60
    assert len(keys(second) & keys(first)) < 30


def test_the_second_cycle_is_about_the_new_pairs(run, start):
    pairs = PairSet.open(run / "cycle-2" / "pairs.arrow")
    starts = PseudoLabels.open(run / "cycle-2" / "start-labels.parquet")
    improved = BiEncoder.load(run / "cycle-1" / "start" / "bi")
    for kind in ("bi", "cross"):
        labels = PseudoLabels.open(run / "cycle-2" / f"labels-{kind}.parquet")
        assert keys(labels.pairs) == keys(pairs)
        np.testing.assert_allclose(labels.scores, 0.75 * labels.by_teacher["start"] + 0.25 * starts.scores, atol=1e-6)
    labels = PseudoLabels.open(run / "cycle-2" / "labels-bi.parquet")
    np.testing.assert_allclose(labels.by_teacher["start"], improved.score(pairs), atol=1e-6)
    np.testing.assert_allclose(starts.scores, BiEncoder.load(start).score(pairs), atol=1e-6)
    training = json.loads((run / "cycle-2" / "start" / "cross" / "training.json").read_text())
    assert training["labels"] == len(pairs)


def test_the_result_and_the_card_say_so(run):
    count = len(PairSet.open(run / "cycle-2" / "pairs.arrow"))
    notes = json.loads((run / "result.json").read_text())["notes"]
    assert f"cycle 2: {count} pairs were mined again" in notes
    assert "mined again from the same text" in (run / "best" / "cross" / "README.md").read_text()


def test_killed_again_and_again_it_ends_the_same(again, run, tmp_path):
    assert killed_until_it_ends(again, tmp_path / "run", write=12) >= 4
    assert contents(tmp_path / "run") == contents(run)


@pytest.mark.parametrize("place", ["cycle-2/pairs.arrow", "cycle-2/start-labels.parquet", "pairs/text.arrow"])
def test_killed_at_what_only_remining_writes_it_ends_the_same(again, run, tmp_path, place):
    assert killed(again, tmp_path / "run", place=place)
    assert killed(again, tmp_path / "run", place=place, after=True)
    again(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(run)


def test_pairs_that_were_damaged_are_mined_again_the_same(again, run, tmp_path):
    folder = tmp_path / "run"
    again(folder)
    for file in ("cycle-2/pairs.arrow", "from-text/pairs/text.arrow"):
        (folder / file).write_bytes(b"damaged")
    again(folder)
    assert contents(folder) == contents(run)


def test_a_run_begun_without_it_is_refused(again, tmp_path):
    again(tmp_path / "run", remine=False, cycles=1)
    with pytest.raises(RunError, match=r"remined\.text: was 'absent'"):
        again(tmp_path / "run", cycles=1)


def test_members_share_the_mining_out(start, roberta, corpus, tmp_path):
    text = Text.read(corpus)
    text.save(tmp_path / "text.arrow")
    miner = TextMiner(tmp_path / "text.arrow", text.hash, 61, Mix.parse("4,2,2,2,0"), 3)
    team = [ModelRef(folder.name, "bi", str(folder), max_tokens=32) for folder in (start, roberta)]
    pairs = miner(team, cycle=2)
    assert 50 <= len(pairs) <= 61
    assert len(keys(pairs)) == len(pairs)
    alone = [miner([member], cycle=2) for member in team]
    assert keys(pairs) - keys(alone[0])
    assert pickle.loads(pickle.dumps(miner))(team, cycle=2).hash == pairs.hash
    assert miner(team, cycle=3).hash != pairs.hash


@pytest.mark.parametrize("formulation", ["alternate", "bi"])
def test_the_report_copes_with_pairs_that_change(again, tmp_path, formulation):
    folder = again(tmp_path / "run", formulation=formulation).folder
    page = write_report([folder]).read_text(encoding="utf-8")
    assert "pairs were mined again" in page
    assert ("cycle 2: bi → cross" in page) == (formulation == "alternate")


def test_a_plan_counts_the_mining(start, corpus, dev):
    text, config = Text.read(corpus), make_config([f"{start}={start}"], overrides={**SETTINGS, "cycles": 3})
    pairs = TestSet("dev", dev)
    plan = plan_run(config, dev, dev=pairs, remined=text)
    assert [(stage.name, stage.cycles) for stage in plan.stages][:2] == [
        ("mine pairs again", 2),
        ("label them with the start", 2),
    ]
    assert plan.seconds == pytest.approx(sum(stage.cycles * stage.seconds for stage in plan.stages))
    assert {stage.cycles for stage in plan_run(config, dev, dev=pairs).stages} == {3}


def test_the_commands_take_it_as_a_flag_and_from_a_file(start, corpus, tmp_path):
    given = ["--text", str(corpus), "--model", f"{start}={start}", "--max-pairs", "60", "--out", str(tmp_path / "run")]
    checked = CliRunner().invoke(app, ["check", *given, "--remine", "--set", "device=cpu", "--json"])
    assert checked.exit_code == 0, checked.output
    assert json.loads(checked.stdout)["stages"][0]["name"] == "mine pairs again"
    file = tmp_path / "run.toml"
    file.write_text(f'members = ["{start}"]\n[inputs]\ntext = "{corpus}"\nremine = true\nout = "x"\n')
    shown = CliRunner().invoke(app, ["check", str(file), "--set", "device=cpu", "--max-pairs", "60"])
    assert "mine pairs again, from cycle 2 on" in shown.output


@pytest.mark.parametrize("option", [["--remine"], ["--mix", "1,0,0,1,6"]])
def test_without_text_it_is_refused(start, tmp_path, option):
    given = ["--pairs", "pairs.jsonl", "--model", str(start), "--out", str(tmp_path / "run")]
    refused = CliRunner().invoke(app, ["train", *given, *option])
    assert refused.exit_code == ConfigurationError.exit_code
    assert "give --text PATH" in refused.output
