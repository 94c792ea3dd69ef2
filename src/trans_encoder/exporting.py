"""Export: an encoder as an ordinary sentence-transformers folder, or with an ONNX graph of its body beside it."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from trans_encoder.encoders import Encoder, load_encoder
from trans_encoder.errors import ConfigurationError, MissingExtraError, RunError
from trans_encoder.files import atomic_folder

Format = Literal["safetensors", "onnx"]

_PAIRS = [("a", "a few more words"), ("an example", "another one, longer than the first")]
_OTHER_PAIRS = [("the graph must take", "any number of texts"), ("of", "any length"), ("not only", "the example's")]
_TOLERANCE = 1e-4


def export(model: Encoder | str | Path, out: str | Path, *, to: Format = "safetensors") -> Path:
    """Write the model to folder `out`; `to="onnx"` adds `onnx/model.onnx`, checked against the model itself.

    `out` may be new, empty, or hold a model, which is replaced; any other folder is refused.
    The graph is made by torch's own exporter: the ONNX backend of sentence-transformers rests on optimum-onnx, of which
    no release works with transformers 5. The file is where that backend looks for it.
    """
    if to == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            if find_spec(package) is None:
                raise MissingExtraError(package, extra="onnx")
    folder = Path(out)
    _check_target(folder)
    encoder = load_encoder(model, device="cpu") if isinstance(model, str | Path) else model
    with atomic_folder(folder.resolve()) as temporary:
        encoder.save(temporary)
        if to == "onnx":
            _write_onnx(encoder, temporary / "onnx" / "model.onnx")
    return folder


def _check_target(folder: Path) -> None:
    """Refuse to replace anything but a model."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is a file; give a folder for the model (--out)")
    found = {child.name for child in folder.iterdir()}
    if found and not ("modules.json" in found or {"config.json", "model.safetensors"} <= found):
        raise ConfigurationError(f"{folder} is not empty and holds no model to replace; give another folder (--out)")


def _write_onnx(encoder: Encoder, path: Path) -> None:
    """Export the transformer that stands in front of pooling, or is the whole cross-encoder."""
    path.parent.mkdir()
    inputs = _inputs(encoder, _PAIRS)
    body = _Body(encoder, inputs=list(inputs)).eval()
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with _quiet():
        torch.onnx.export(
            body,
            tuple(inputs.values()),
            path,
            input_names=body.inputs,
            output_names=[body.output],
            dynamic_shapes=(tuple(axes for _ in inputs),),
            external_data=False,
            verbose=False,
        )
    _verify(path, body, inputs=_inputs(encoder, _OTHER_PAIRS))


def _inputs(encoder: Encoder, pairs: list[tuple[str, str]]) -> dict[str, torch.Tensor]:
    texts = pairs if encoder.kind == "cross" else [text for pair in pairs for text in pair]
    features = encoder.model.preprocess(texts)
    return {name: features[name].cpu() for name in encoder.model.tokenizer.model_input_names if name in features}


class _Body(torch.nn.Module):
    """The transformer with positional inputs and one output, as the exporter wants it."""

    def __init__(self, encoder: Encoder, *, inputs: list[str]) -> None:
        super().__init__()
        module: Any = encoder.model[0]
        self.transformer = deepcopy(module.model).cpu()
        self.inputs = inputs
        self.output = "logits" if encoder.kind == "cross" else "last_hidden_state"

    def forward(self, *tensors: torch.Tensor) -> Any:
        return getattr(self.transformer(**dict(zip(self.inputs, tensors, strict=True))), self.output)


def _verify(path: Path, body: _Body, *, inputs: dict[str, torch.Tensor]) -> None:
    """Run the graph on texts that it was not made from and compare it with the model."""
    from onnxruntime import InferenceSession

    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    with torch.inference_mode():
        expected = body(*inputs.values()).numpy()
    if found.ndim == 3:  # what stands at padding is nobody's output
        real = inputs["attention_mask"].numpy().astype(bool)
        found, expected = found[real], expected[real]
    difference = float(np.abs(found - expected).max())
    if not difference < _TOLERANCE:
        raise RunError(f"the ONNX graph differs from the model by {difference:.2g}; export to safetensors instead")


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the exporter's notes on operators of packages that are not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
