"""The road from raw text: stage 0, mining and cycles in one run folder that continues where it stopped."""

import json
from functools import partial

import pytest
from typer.testing import CliRunner

from conftest import TINY_RUN
from trans_encoder import distil
from trans_encoder.cli import app
from trans_encoder.cli.jobs import placeholder_pairs
from trans_encoder.config import make_config
from trans_encoder.data.tasks import TestSet
from trans_encoder.data.text import Text
from trans_encoder.errors import RunError
from trans_encoder.pipelines import from_text
from trans_encoder.pipelines.from_text import MINED_PAIRS, TextOptions, is_begun, prepare
from trans_encoder.report import ModelKey
from trans_encoder.report.measuring import evaluate_run


def test_a_bare_model_is_tuned_first_and_stays_the_plm(bert, corpus, tmp_path):
    config = make_config([str(bert)], preset="small", overrides=TINY_RUN)
    ready = prepare(config, Text.read(corpus), out=tmp_path / "run", options=TextOptions(pairs=40))
    (member,) = ready.config.members
    assert member.plm == str(bert)
    assert member.bi == str(tmp_path / "run" / "from-text" / str(member.name) / "bi")
    assert (len(ready.pairs), ready.miner) == (40, None)
    again = prepare(config, Text.read(corpus), out=tmp_path / "run", options=TextOptions(pairs=40))
    assert (again.config, again.pairs.hash) == (ready.config, ready.pairs.hash)


def test_text_becomes_two_models_and_the_same_call_continues(bert, corpus, tmp_path):
    first = distil(Text.read(corpus), str(bert), out=tmp_path / "run", pairs=40, **TINY_RUN)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    second = distil(Text.read(corpus), str(bert), out=tmp_path / "run", pairs=40, **TINY_RUN)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text()) == manifest
    assert first.bi.encode(["the old farmer"]).shape == second.bi.encode(["the old farmer"]).shape == (1, 32)
    account = json.loads((tmp_path / "run" / "from-text" / "pairs" / "mined" / "mining.json").read_text())
    assert account["pairs"] == 40


def test_a_run_from_text_may_be_moved_and_names_its_start(bert, corpus, dev, tmp_path):
    settings = {**TINY_RUN, "cycles": 1, "formulation": "bi", "precision": "fp32", "trackers": ("tensorboard",)}
    begin = partial(distil, Text.read(corpus), str(bert), pairs=40, **settings)
    begin(out=tmp_path / "run")
    assert list((tmp_path / "run" / "from-text" / "bert-32" / "logs" / "stage-0").iterdir())
    card = (tmp_path / "run" / "best" / "bi" / "README.md").read_text()
    assert "Members of the team: bert\\-32\n" in card
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    manifest = (moved / "manifest.json").read_bytes()
    assert is_begun(make_config([str(bert)], overrides=settings), out=moved)
    with pytest.raises(RunError, match="seed: was 42, now 7"):
        is_begun(make_config([str(bert)], overrides={**settings, "seed": 7}), out=moved)
    begin(out=moved)
    assert (moved / "manifest.json").read_bytes() == manifest
    (outcome,) = evaluate_run(moved, {"dev": TestSet("dev", dev)})
    assert ModelKey("start", "bert-32", "bi") in outcome.values


def test_stage_0_works_where_and_how_the_run_does(bert, corpus, tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(from_text, "bootstrap", lambda *_, **options: given.update(options) or stop())

    def stop():
        raise RunError("far enough")

    config = make_config([str(bert)], overrides={"device": "cpu", "precision": "bf16", "trackers": ("tensorboard",)})
    with pytest.raises(RunError, match="far enough"):
        prepare(config, Text.read(corpus), out=tmp_path / "run")
    assert (given["device"], given["precision"], given["trackers"]) == ("cpu", "bf16", ("tensorboard",))


def test_other_text_in_the_same_folder_is_refused(bert, corpus, tmp_path):
    config = make_config([str(bert)], preset="small", overrides=TINY_RUN)
    prepare(config, Text.read(corpus), out=tmp_path / "run", options=TextOptions(pairs=40))
    other = tmp_path / "other.txt"
    other.write_text("".join(corpus.read_text().splitlines(keepends=True)[:150]), encoding="utf-8")
    with pytest.raises(RunError, match="begun with other"):
        prepare(config, Text.read(other), out=tmp_path / "run", options=TextOptions(pairs=40))


def test_the_command_trains_from_text(bert, corpus, tmp_path):
    settings = [f"--set={key}={json.dumps(value)}" for key, value in flat(TINY_RUN).items()]
    given = ["train", "--text", str(corpus), "--model", str(bert), "--max-pairs", "40", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*given, *settings, "--mix", "1,0,0,1,2", "--objective", "mirror", "--json"])
    assert done.exit_code == 0, done.output
    tuned = json.loads((tmp_path / "run" / "from-text" / "bert-32" / "config.json").read_text())
    assert tuned["plan"]["objective"] == "mirror"
    assert json.loads(done.stdout)["summary"]
    mined = json.loads((tmp_path / "run" / "from-text" / "pairs" / "mined" / "mining.json").read_text())
    assert {band: sum(by.values()) for band, by in mined["counts"].items()} == {"near": 10, "random": 10, "parts": 20}
    assert (tmp_path / "run" / "best" / "bi" / "model.safetensors").exists()
    assert (tmp_path / "run" / "best" / "cross" / "model.safetensors").exists()


def test_an_objective_without_text_is_refused(bert, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\none two\tthree four\n")
    given = ["check", "--pairs", str(tmp_path / "pairs.tsv"), "--model", str(bert), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*given, "--objective", "mirror"])
    assert done.exit_code == 2
    assert "--objective is for raw text" in done.stderr


def test_the_command_takes_documents_and_named_columns(bert, tmp_path):
    rows = [f"the old farmer number {number} sells a boat. The tall baker {number} buys it." for number in range(20)]
    lines = tmp_path / "documents.txt"
    lines.write_text("\n".join(rows), encoding="utf-8")
    table = tmp_path / "documents.csv"
    table.write_text("\n".join(["id,story", *(f'{row[:3]},"{row}"' for row in rows)]), encoding="utf-8")
    config = tmp_path / "run.toml"
    config.write_text(
        f'members = ["{bert}"]\n[inputs]\ntext = "{lines}"\nline = "document"\nout = "{tmp_path / "run"}"\n'
    )
    given = ["--model", str(bert), "--out", str(tmp_path / "run")]
    for arguments in ([str(config)], [*given, "--text", str(table), "--column", "story"]):
        done = CliRunner().invoke(app, ["check", *arguments, "--max-pairs", "60", "--set", "device=cpu", "--json"])
        assert done.exit_code == 0, done.output
        checked = json.loads(done.stdout)
        assert checked["pairs"]["count"] == 60  # of forty sentences
        assert any("before the cycles is not counted" in note for note in checked["notes"])


def test_as_many_pairs_are_mined_as_were_asked_for(bert, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "trans_encoder.pipelines.from_text.prepare", lambda *_, options, **__: asked.append(options.pairs) or stop()
    )

    def stop():
        raise RunError("far enough")

    text = tmp_path / "text.txt"
    text.write_text("the old farmer sells a boat\nthe tall baker buys it\nthe pilot paints a lamp\n")
    given = ["train", "--text", str(text), "--model", str(bert), "--out", str(tmp_path / "run")]
    for more in ([], ["--max-pairs", "20000"]):
        assert "far enough" in CliRunner().invoke(app, [*given, *more]).stderr
    assert asked == [MINED_PAIRS, 20_000]


def test_one_sentence_is_no_text(bert, tmp_path):
    (tmp_path / "text.txt").write_text("the old farmer sells a boat\n")
    for command in ("check", "train"):
        given = [command, "--text", str(tmp_path / "text.txt"), "--model", str(bert), "--out", str(tmp_path / "run")]
        done = CliRunner().invoke(app, given)
        assert done.exit_code == 2
        assert "has 1 sentence; pairs are mined from at least 2" in done.stderr
    assert not (tmp_path / "run").exists()


def test_stand_ins_are_all_different():
    text = Text.from_sentences([f"sentence {number}" for number in range(6)])
    for asked, count in ((4, 4), (15, 15), (99, 15)):
        assert len(placeholder_pairs(text, count=asked).deduplicated()) == count


def flat(settings: dict, prefix: str = "") -> dict:
    """Return nested settings with dotted keys."""
    found = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found
