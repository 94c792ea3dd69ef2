"""Exports: ordinary folders, ONNX graphs that say what the model says, and the missing extra by name."""

import sys

import numpy as np
import pytest
import sentence_transformers

from trans_encoder.encoders import BiEncoder, CrossEncoder, load_encoder
from trans_encoder.errors import ConfigurationError, MissingExtraError
from trans_encoder.exporting import export
from trans_encoder.files import atomic_folder


@pytest.mark.parametrize(
    ("kind", "family"), [(BiEncoder, "bert"), (CrossEncoder, "roberta"), (BiEncoder, "modernbert")]
)
def test_the_graph_says_what_the_model_says(family, kind, tiny_model, sentences, tmp_path):
    from onnxruntime import InferenceSession

    encoder = kind.load(tiny_model(family), max_tokens=48)
    folder = export(encoder, tmp_path / "out", to="onnx")
    session = InferenceSession(folder / "onnx" / "model.onnx")
    texts = [(sentences[0], "short"), ("tall", sentences[1]), (sentences[2], sentences[3])]
    features = encoder.model.preprocess(texts if encoder.kind == "cross" else [text for pair in texts for text in pair])
    names = [each.name for each in session.get_inputs()]
    found = session.run(None, {name: features[name].numpy() for name in names})
    model = encoder.model[0].model.eval()
    output = model(**{name: features[name] for name in names})
    if encoder.kind == "cross":
        np.testing.assert_allclose(found[0], output.logits.detach().numpy(), atol=1e-4)
        return
    real = features["attention_mask"].numpy().astype(bool)
    np.testing.assert_allclose(found[0][real], output.last_hidden_state.detach().numpy()[real], atol=1e-4)
    embeddings = encoder.model.encode([text for pair in texts for text in pair])
    np.testing.assert_allclose(found[1], embeddings, atol=1e-4)


def test_a_safetensors_export_is_an_ordinary_folder(bert, dev, tmp_path):
    folder = export(bert, tmp_path / "out")
    assert (folder / "model.safetensors").exists()
    assert not (folder / "onnx").exists()
    sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(load_encoder(folder).score(dev), load_encoder(bert).score(dev), atol=1e-6)


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_extra_names_its_install_line(package, bert, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf'{package} is not installed.*pip install "trans-encoder\[onnx\]"'):
        export(bert, tmp_path / "out", to="onnx")
    assert not (tmp_path / "out").exists()


def test_a_model_is_replaced_and_nothing_else_is(bert, roberta, tmp_path, monkeypatch):
    run = tmp_path / "runs" / "mine"
    (run / "best").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for target in ("runs", "runs/mine", ".", "runs/mine/config.json"):
        with pytest.raises(ConfigurationError, match="give a"):
            export(bert, target)
    assert (run / "config.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    export(bert, "runs/mine/best")
    export(roberta, "runs/mine/best")
    assert load_encoder(run / "best").encode(["a boat"]).shape == (1, 48)
    monkeypatch.chdir(run / "best")
    export(bert, ".")
    assert load_encoder(run / "best").encode(["a boat"]).shape == (1, 32)


def test_the_old_folder_stays_until_the_new_one_is_in_place(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "old").write_text("old")
    replace = type(folder).replace

    def fail(self, target):
        if self.name == "model.partial":
            assert not folder.exists()
            raise OSError("the disk is gone")
        return replace(self, target)

    monkeypatch.setattr(type(folder), "replace", fail)
    with pytest.raises(OSError, match="the disk is gone"), atomic_folder(folder) as temporary:
        (temporary / "new").write_text("new")
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "old"]
    monkeypatch.undo()
    with atomic_folder(folder) as temporary:
        (temporary / "new").write_text("new")
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "new"]
