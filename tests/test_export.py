"""Exports: ordinary folders, ONNX graphs that say what the model says, and the missing extra by name."""

import sys

import numpy as np
import pytest
import sentence_transformers

from trans_encoder.encoders import BiEncoder, CrossEncoder, load_encoder
from trans_encoder.errors import MissingExtraError
from trans_encoder.exporting import export


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
    (found,) = session.run(None, {name: features[name].numpy() for name in names})
    model = encoder.model[0].model.eval()
    output = model(**{name: features[name] for name in names})
    expected = output.logits if encoder.kind == "cross" else output.last_hidden_state
    real = features["attention_mask"].numpy().astype(bool) if encoder.kind == "bi" else slice(None)
    np.testing.assert_allclose(found[real], expected.detach().numpy()[real], atol=1e-4)


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
