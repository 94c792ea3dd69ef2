"""Models that have pickled weights only: converted safely, once, and noted with the commit they come from."""

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.encoders.loading import fingerprint
from trans_encoder.errors import ConfigurationError
from trans_encoder.files import sha256

COMMIT = "0123456789abcdef0123456789abcdef01234567"

LOAD_FROM_HUB = """
import json, sys
from trans_encoder.encoders import BiEncoder
encoder = BiEncoder.load("organisation/old-model", device="cpu", max_tokens=32)
print(json.dumps([encoder.fingerprint(), encoder.encode(["the old farmer"]).tolist()]))
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("TRANS_ENCODER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pickled(bert, tmp_path):
    """The tiny BERT as older releases were saved."""
    folder = Path(shutil.copytree(bert, tmp_path / "old-model"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


@pytest.mark.parametrize("load", [BiEncoder.load, CrossEncoder.load])
def test_a_folder_with_a_bin_file_alone_scores_as_its_safetensors_do(bert, pickled, cache, pairs, load):
    few = pairs.take(range(8))
    expected = load(bert, max_tokens=32, device="cpu").score(few)
    found = load(pickled, max_tokens=32, device="cpu").score(few)
    np.testing.assert_array_equal(found, expected)
    assert not (pickled / "model.safetensors").exists(), "the user's folder was written to"


def test_the_conversion_is_told_once_and_kept(pickled, cache, caplog):
    with caplog.at_level(logging.WARNING):
        BiEncoder.load(pickled, device="cpu")
        told = [message for message in caplog.messages if "converting them once" in message]
        (made,) = (cache / "converted").iterdir()
        before = (made / "model.safetensors").stat().st_mtime_ns
        BiEncoder.load(pickled, device="cpu")
    assert len(told) == 1
    assert str(made) in told[0]
    assert [message for message in caplog.messages if "converting them once" in message] == told
    assert (made / "model.safetensors").stat().st_mtime_ns == before
    note = json.loads((made / "converted.json").read_text(encoding="utf-8"))
    assert note["weights"] == {"pytorch_model.bin": sha256(pickled / "pytorch_model.bin")}


def test_other_weights_are_converted_again(pickled, cache):
    first = BiEncoder.load(pickled, device="cpu").encode(["the old farmer"])
    state = torch.load(pickled / "pytorch_model.bin", weights_only=True)
    torch.save({name: tensor * 2 for name, tensor in state.items()}, pickled / "pytorch_model.bin")
    assert np.abs(BiEncoder.load(pickled, device="cpu").encode(["the old farmer"]) - first).max() > 0.01


def test_weights_that_share_storage_are_converted(pickled, cache):
    state = torch.load(pickled / "pytorch_model.bin", weights_only=True)
    state["decoder.weight"] = state["embeddings.word_embeddings.weight"]
    torch.save(state, pickled / "pytorch_model.bin")
    assert BiEncoder.load(pickled, device="cpu").encode(["the old farmer"]).shape == (1, 32)


def test_a_damaged_file_is_refused_and_leaves_nothing_in_the_cache(pickled, cache):
    content = (pickled / "pytorch_model.bin").read_bytes()
    (pickled / "pytorch_model.bin").write_bytes(content[: len(content) // 2])
    with pytest.raises(ConfigurationError, match=r"cannot be converted safely.*model\.safetensors"):
        BiEncoder.load(pickled, device="cpu")
    assert not list(cache.rglob("*.safetensors"))


def test_the_fingerprint_of_a_pickled_folder_tells_its_weights_apart(pickled):
    before = fingerprint(pickled)
    torch.save({"nothing": torch.zeros(1)}, pickled / "pytorch_model.bin")
    assert fingerprint(pickled) != before


def test_a_hub_model_without_safetensors_is_converted_from_the_commit_that_is_noted(pickled, cache, tmp_path):
    stored = tmp_path / "home" / "hub" / "models--organisation--old-model"
    shutil.copytree(pickled, stored / "snapshots" / COMMIT)
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    environment.pop("HF_HUB_CACHE", None)
    done = subprocess.run(
        [sys.executable, "-c", LOAD_FROM_HUB], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    noted, embedding = json.loads(done.stdout)
    weights = sha256(pickled / "pytorch_model.bin")
    assert noted == {"hub": "organisation/old-model", "revision": COMMIT, "pytorch_model.bin": weights}
    expected = BiEncoder.load(pickled, device="cpu", max_tokens=32).encode(["the old farmer"])
    np.testing.assert_array_equal(np.float32(embedding), expected)
    (made,) = [folder for folder in (cache / "converted").iterdir() if folder.name.startswith("old-model-")]
    assert json.loads((made / "converted.json").read_text(encoding="utf-8"))["revision"] == COMMIT
