"""ONNX exports as models: the same verbs and scores, in 8 bits with a loss that is measured and told."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from trans_encoder.cli import app
from trans_encoder.data.tasks import TestSet
from trans_encoder.data.writers import write_pairs
from trans_encoder.encoders import BiEncoder, CrossEncoder, load_encoder
from trans_encoder.errors import ConfigurationError
from trans_encoder.evaluation.evaluate import evaluate
from trans_encoder.evaluation.metrics import spearman
from trans_encoder.exporting import export, read_loss
from trans_encoder.exporting.int8 import reference_pairs


@pytest.fixture(scope="module")
def exported(bert, tmp_path_factory):
    """A tiny model of each kind, with its float32 and its 8-bit export."""
    root = tmp_path_factory.mktemp("exported")
    made = {}
    for kind in (BiEncoder, CrossEncoder):
        encoder = kind.load(bert, max_tokens=48, device="cpu")
        folders = {
            int8: export(encoder, root / f"{encoder.kind}-{int8}", to="onnx", int8=int8) for int8 in (False, True)
        }
        made[encoder.kind] = (encoder, folders)
    return made


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_an_export_scores_as_its_model_does(exported, kind, uneven):
    encoder, folders = exported[kind]
    loaded = load_encoder(folders[False])
    assert loaded.kind == kind
    assert loaded.max_tokens == 48
    np.testing.assert_allclose(loaded.score(uneven), encoder.score(uneven), atol=1e-4)
    if kind == "bi":
        texts = ["a boat", "the old farmer carries the red boat beside the river"]
        np.testing.assert_allclose(loaded.encode(texts), encoder.encode(texts), atol=1e-4)


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_eight_bits_take_a_part_of_the_space_and_say_what_they_cost(exported, kind, uneven):
    encoder, folders = exported[kind]
    folder = folders[True]
    assert [file.name for file in (folder / "onnx").glob("*.onnx")] == ["model_int8.onnx"]
    assert not list(folder.rglob("*.safetensors"))
    quantised = load_encoder(folder)
    difference = np.abs(quantised.score(uneven) - encoder.score(uneven)).max()
    assert 0 < difference < 0.1, "the scores are those of other weights, and close"
    loss = read_loss(folder)
    assert loss.before is None
    scores = (each.score(reference_pairs()) for each in (quantised, encoder))
    assert loss.agreement == pytest.approx(spearman(*scores), abs=0.1)
    assert "Python's documentation" in str(loss)
    assert read_loss(folders[False]) is None


def test_the_loss_is_measured_on_a_dev_set(exported, dev, tmp_path):
    encoder, _ = exported["bi"]
    test = TestSet("mine", dev)
    loss = read_loss(export(encoder, tmp_path / "out", to="onnx", int8=True, dev=test))
    assert loss.before == pytest.approx(evaluate(encoder, test).average)
    assert loss.after == pytest.approx(evaluate(tmp_path / "out", test).average)
    assert f"{loss.before:.2f} before, {loss.after:.2f} after on mine" in str(loss)


def test_commands_take_exports_as_models(exported, dev, tmp_path):
    write_pairs(dev, tmp_path / "dev.jsonl")
    folder = tmp_path / "bi"
    exported["bi"][0].save(tmp_path / "model")
    given = ["export", str(tmp_path / "model"), "--to", "onnx", "--int8", "--dev", str(tmp_path / "dev.jsonl")]
    made = CliRunner().invoke(app, [*given, "--out", str(folder), "--json"])
    assert made.exit_code == 0, made.output
    loss = json.loads(made.stdout)["loss"]
    found = CliRunner().invoke(app, ["evaluate", str(folder), "--test", str(tmp_path / "dev.jsonl"), "--json"])
    assert json.loads(found.stdout)["average"] == pytest.approx(loss["after"])
    scored = CliRunner().invoke(app, ["score", str(folder), "--pairs", str(tmp_path / "dev.jsonl")])
    assert len(scored.stdout.splitlines()) == len(dev)


def test_an_index_is_made_searched_and_deduplicated_with_exports(exported, sentences, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(sentences[:30]), encoding="utf-8")
    bi, cross = (str(exported[kind][1][True]) for kind in ("bi", "cross"))
    index = str(tmp_path / "texts.index")
    for command in (
        ["index", "--text", str(tmp_path / "texts.txt"), "--model", bi, "--out", index],
        ["duplicates", index, "--cross", cross, "--out", str(tmp_path / "duplicates")],
        ["search", index, sentences[0], "--cross", cross, "--json"],
        ["search", index, sentences[0], "--top", "1", "--json"],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["hits"][0]["text"] == sentences[0]
    refused = CliRunner().invoke(
        app, ["index", "--text", str(tmp_path / "texts.txt"), "--model", cross, "--out", index]
    )
    assert refused.exit_code == 2
    assert "is a cross-encoder" in " ".join(refused.output.split())


def test_what_an_export_cannot_do_is_refused(exported, tmp_path):
    folder = exported["bi"][1][True]
    with pytest.raises(ConfigurationError, match="at most 48 tokens"):
        load_encoder(folder, max_tokens=64)
    with pytest.raises(ConfigurationError, match="cannot be used as a cross-encoder"):
        load_encoder(folder, kind="cross")
    with pytest.raises(ConfigurationError, match="pooling is in its graph"):
        load_encoder(folder, pooling="cls")
    with pytest.raises(ConfigurationError, match="an ONNX export already"):
        export(folder, tmp_path / "again", to="onnx")
    with pytest.raises(ConfigurationError, match="--to onnx --int8"):
        export(exported["bi"][0], tmp_path / "again", int8=True)
    assert not (tmp_path / "again").exists()


def test_a_shorter_length_is_taken(exported, uneven):
    encoder, folders = exported["cross"]
    short = CrossEncoder.load(Path(encoder.name), max_tokens=12, device="cpu")
    found = load_encoder(folders[False], max_tokens=12)
    np.testing.assert_allclose(found.score(uneven), short.score(uneven), atol=1e-4)
