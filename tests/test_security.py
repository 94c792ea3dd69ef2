"""No pickles, no remote code, no network, no writing outside the run folder."""

import json
import pickle
import shutil
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conftest import TINY_RUN
from trans_encoder.cli import app
from trans_encoder.config import MemberConfig, make_config
from trans_encoder.data.tasks import TestSet
from trans_encoder.data.writers import write_pairs
from trans_encoder.distill.cards import escaped
from trans_encoder.distill.team import resolve_members
from trans_encoder.encoders import BiEncoder, CrossEncoder, load_encoder
from trans_encoder.errors import ConfigurationError
from trans_encoder.pipelines.distil import distil
from trans_encoder.report.measuring import evaluate_run

ONE_CYCLE = {**TINY_RUN, "cycles": 1}


class Intruder:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


@pytest.fixture
def copied(bert, tmp_path):
    """A copy of a model that may be tampered with."""
    return Path(shutil.copytree(bert, tmp_path / "model"))


@pytest.fixture
def no_network(monkeypatch):
    """Make every attempt to reach another machine fail the test, at once and aloud."""
    tried: list[object] = []

    def refuse(_self, address, *_):
        tried.append(address)
        raise PermissionError(f"the network was reached for: {address}")

    def refuse_name(*address, **_):
        tried.append(address)
        raise socket.gaierror(f"a name was looked up: {address}")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse_name)
    # As if HF_HUB_OFFLINE were not set.
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    yield tried
    assert tried == []


def test_reaching_for_the_network_is_noticed(no_network):
    from huggingface_hub.utils import get_session

    with pytest.raises(Exception, match=r"a name was looked up: .*huggingface"):
        get_session().get("https://huggingface.co/api/models")
    assert no_network
    no_network.clear()


REFUSED = {
    "pytorch_model.bin": r"cannot be converted safely.*nothing in it was run",
    "model.pt": r"only pickled weights \(model.pt\)",
    "weights.ckpt": r"only pickled weights \(weights.ckpt\)",
}


@pytest.mark.parametrize("load", [BiEncoder.load, CrossEncoder.load, load_encoder])
@pytest.mark.parametrize("name", REFUSED)
def test_code_in_pickled_weights_is_never_run(copied, tmp_path, monkeypatch, load, name):
    monkeypatch.setenv("TRANS_ENCODER_CACHE", str(tmp_path / "cache"))
    (copied / "model.safetensors").unlink()
    trace = tmp_path / "trace"
    (copied / name).write_bytes(pickle.dumps(Intruder(trace)))
    with pytest.raises(ConfigurationError, match=REFUSED[name]):
        load(copied)
    assert not trace.exists()
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_pickle_beside_sound_weights_is_left_alone(copied, tmp_path, pairs):
    trace = tmp_path / "trace"
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        (copied / name).write_bytes(pickle.dumps(Intruder(trace)))
    BiEncoder.load(copied, max_tokens=32).score(pairs.take([0, 1]))
    assert not trace.exists()


def test_a_pickle_called_safetensors_is_refused(copied, tmp_path):
    trace = tmp_path / "trace"
    (copied / "model.safetensors").write_bytes(pickle.dumps(Intruder(trace)))
    with pytest.raises(ConfigurationError, match="could not be loaded"):
        BiEncoder.load(copied)
    assert not trace.exists()


def test_a_pickle_in_a_checkpoint_is_never_unpickled(bert, pairs, dev, tmp_path):
    run, trace = tmp_path / "run", tmp_path / "trace"
    distil(pairs, str(bert), dev=dev, out=run, **ONE_CYCLE)
    shutil.rmtree(run / "cycle-1" / "bert-32" / "cross")
    scratch = run / "cycle-1" / "bert-32" / "cross.training" / "checkpoint-5"
    scratch.mkdir(parents=True)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        (scratch / name).write_bytes(pickle.dumps(Intruder(trace)))
    distil(pairs, str(bert), dev=dev, out=run, **ONE_CYCLE)
    assert not trace.exists()
    assert not list(run.rglob("*.bin")) + list(run.rglob("*.pt")) + list(run.rglob("*.pth"))


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "0_Transformer/config.json"])
@pytest.mark.parametrize("load", [BiEncoder.load, CrossEncoder.load, load_encoder])
def test_a_model_with_code_of_its_own_is_refused(copied, tmp_path, load, file):
    trace = tmp_path / "trace"
    (copied / "odd.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass Odd: pass\n")
    place = copied / file
    place.parent.mkdir(exist_ok=True)
    known = json.loads(place.read_text()) if place.exists() else {}
    place.write_text(json.dumps(known | {"auto_map": {"AutoConfig": "odd.Odd", "AutoModel": "odd.Odd"}}))
    with pytest.raises(ConfigurationError, match=rf"own code \(auto_map in {file}\).*--trust-remote-code"):
        load(copied)
    assert not trace.exists()


def test_modules_of_strangers_are_refused(bert, tmp_path):
    folder, trace = tmp_path / "bi", tmp_path / "trace"
    BiEncoder.load(bert).save(folder)
    (folder / "odd.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass Odd: pass\n")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "odd.Odd"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ConfigurationError, match="could not be loaded"):
        BiEncoder.load(folder)
    assert not trace.exists()


def test_a_damaged_configuration_of_a_model_is_named(copied):
    (copied / "config.json").write_text("{")
    with pytest.raises(ConfigurationError, match="could not be loaded"):
        BiEncoder.load(copied)


def test_everything_works_without_a_network(no_network, bert, roberta, sentences, pairs, dev, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(sentences[:60]), encoding="utf-8")
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    write_pairs(dev, tmp_path / "dev.csv")
    run = str(tmp_path / "run")
    settings = ["cycles=1", "cross.batch_size=16", "bi.batch_size=16", "bi.epochs=1", "cross.epochs=1"]
    chosen = [part for setting in settings for part in ("--set", setting)]
    models = ["--model", str(bert), "--model", str(roberta)]
    for arguments in (
        ["check", "--pairs", str(tmp_path / "pairs.jsonl"), *models, "--out", run, *chosen],
        ["train", "--pairs", str(tmp_path / "pairs.jsonl"), *models, "--dev", str(tmp_path / "dev.csv"), "--out", run,
         "--test", str(tmp_path / "dev.csv"), *chosen],
        ["evaluate", f"{run}/best/bert-32/bi", f"{run}/best/roberta-48/cross", "--test", str(tmp_path / "dev.csv")],
        ["score", f"{run}/best/bert-32/cross", "--pairs", str(tmp_path / "pairs.jsonl"), "--out", f"{run}/s.jsonl"],
        ["report", run],
        ["label", f"{run}/best/bert-32/bi", f"{run}/best/bert-32/cross", "--pairs", str(tmp_path / "pairs.jsonl"),
         "--out", str(tmp_path / "labels.parquet")],
        ["export", f"{run}/best/bert-32/bi", "--to", "safetensors", "--out", str(tmp_path / "exported")],
        ["bootstrap", "--text", str(corpus), "--model", str(bert), "--set", "epochs=1", "--out", f"{run}-start"],
        ["mine", "--text", str(corpus), "--model", f"{run}-start/bi", "--mix", "4,2,2,2,0",
         "--out", f"{run}-mined.jsonl"],
        ["train", "--text", str(corpus), "--model", str(bert), "--remine", "--out", str(tmp_path / "text"), *chosen,
         "--set", "cycles=2", "--max-pairs", "200"],
    ):  # fmt: skip
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "report.html").exists()


def test_the_card_of_a_local_model_cannot_send_a_run_to_the_network(no_network, copied):
    (copied / "README.md").write_text("---\nbase_model: evil/model\n---\n")
    config, notes = resolve_members(make_config([str(copied)]))
    assert config.members[0].plm == str(copied)
    assert "names the PLM evil/model, which was not fetched" in notes[0]


@pytest.mark.parametrize(
    "name", ["../../outside", "/tmp/outside", "..", ".", "a/b", "a\\b", "", "con\0", "x" * 300, "-rf", "~", "a\nb"]
)
def test_no_member_can_be_called_what_leads_out_of_the_run_folder(name):
    with pytest.raises(ConfigurationError, match="name"):
        make_config([{"bi": "model", "name": name}])  # type: ignore[list-item]


@pytest.mark.parametrize("model", ["../..", "/", "....//", "a/../..", "C:\\..\\x", ".hidden/..", "%2e%2e/x", "<b>/&"])
def test_names_made_from_models_are_plain(model):
    (member,) = make_config([MemberConfig(bi=model)]).members
    assert member.name
    assert Path(member.name).name == member.name
    assert member.name not in (".", "..")
    assert set(member.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def test_test_sets_cannot_write_outside_the_run_folder(mutual, dev, tmp_path):
    run = Path(shutil.copytree(mutual, tmp_path / "deep" / "run"))
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(run)}
    names = ["../../../outside", "/tmp/trans-encoder-outside", "..", "<script>alert(1)</script>"]
    evaluate_run(run, {name: TestSet(name, dev) for name in names})
    assert {path for path in tmp_path.rglob("*") if not path.is_relative_to(run)} == before
    assert not Path("/tmp/trans-encoder-outside.parquet").exists()
    assert len(list((run / "evaluation").iterdir())) == len(names)


@pytest.mark.parametrize("text", ["<script>x</script>", "[a](javascript:x)", "![x](y)", "a\n# b", "|`$&", "---\nx: y"])
def test_cards_show_whatever_they_are_given_as_text(text):
    shown = escaped(text)
    assert "\n" not in shown
    for mark in "<>[]()`|#$&!":
        assert shown.count(mark) == shown.count(f"\\{mark}")
