"""An encoder as an ONNX graph: tokens in; sentence embeddings, or logits of pairs, out."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trans_encoder.encoders import BiEncoder, Encoder, Kind
from trans_encoder.encoders.runners import first_token_pass
from trans_encoder.errors import ConfigurationError, RunError

_PAIRS = [("a", "a few more words"), ("an example", "another one, longer than the first")]
_OTHER_PAIRS = [("the graph must take", "any number of texts"), ("of", "any length"), ("not only", "the example's")]
_TOLERANCE = 1e-4


def describe(encoder: Encoder) -> dict[str, Any]:
    """Return what is needed, besides the tokenizer, to use the graph of an encoder."""
    model: Any = encoder.model
    note = {
        "kind": encoder.kind,
        "file": "model.onnx",
        "precision": "float32",
        "inputs": list(_inputs(encoder, _PAIRS)),
        "output": _outputs(encoder)[-1],
        "max_tokens": encoder.max_tokens,
        "prompts": {name: prompt for name, prompt in model.prompts.items() if prompt is not None},
        "default_prompt_name": model.default_prompt_name,
    }
    if isinstance(encoder, BiEncoder):
        note |= {"dimension": model.get_embedding_dimension(), "pooling": encoder.pooling}
    return note


def write_graph(encoder: Encoder, path: Path) -> None:
    """Export an encoder with everything behind its transformer, and compare the graph with it."""
    inputs = _inputs(encoder, _PAIRS)
    model = deepcopy(encoder.model).cpu()
    body = _Body(model, encoder, inputs=list(inputs)).eval()
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with _quiet(), _simplified(model, kind=encoder.kind):
        torch.onnx.export(
            body,
            tuple(inputs.values()),
            path,
            input_names=body.inputs,
            output_names=_outputs(encoder),
            dynamic_shapes=(tuple(axes for _ in inputs),),
            external_data=False,
            verbose=False,
        )
    _verify(path, body, inputs=_inputs(encoder, _OTHER_PAIRS))


def _outputs(encoder: Encoder) -> list[str]:
    return ["logits"] if encoder.kind == "cross" else ["last_hidden_state", "sentence_embedding"]


def _inputs(encoder: Encoder, pairs: list[tuple[str, str]]) -> dict[str, torch.Tensor]:
    texts = pairs if encoder.kind == "cross" else [text for pair in pairs for text in pair]
    features = encoder.model.preprocess(texts)
    return {name: features[name].cpu() for name in encoder.model.tokenizer.model_input_names if name in features}


class _Body(torch.nn.Module):
    """The model with positional inputs, as the exporter wants it."""

    def __init__(self, model: Any, encoder: Encoder, *, inputs: list[str]) -> None:
        super().__init__()
        first, *rest = model
        if not hasattr(first, "model") or any(not getattr(module, "include_prompt", True) for module in rest):
            raise ConfigurationError(
                f"model {encoder.name} cannot be a single graph: its texts take different routes, or its pooling "
                f"leaves prompts out; export it to safetensors instead"
            )
        self.transformer: Any = first.model
        self.rest = torch.nn.ModuleList(rest if encoder.kind == "bi" else [])
        self.inputs = inputs
        self.dimension: int | None = getattr(encoder.model, "truncate_dim", None)
        self.is_cross = encoder.kind == "cross"

    def forward(self, *tensors: torch.Tensor) -> Any:
        features: dict[str, Any] = dict(zip(self.inputs, tensors, strict=True))
        output = self.transformer(**features)
        if self.is_cross:
            return output.logits
        features["token_embeddings"] = output.last_hidden_state
        for module in self.rest:
            features = module(features)
        return output.last_hidden_state, features["sentence_embedding"][..., : self.dimension]


@contextmanager
def _simplified(model: Any, *, kind: Kind) -> Iterator[None]:
    """Compute what makes a small graph."""
    # The graph of a bi-encoder gives all tokens of its last layer; that of a cross-encoder only needs the first one.
    with first_token_pass(model) if kind == "cross" else nullcontext():
        # Torch's fused attention becomes nodes that look for rows without a token, which no text is, in every layer.
        model[0].model.set_attn_implementation("eager")
        yield


def _verify(path: Path, body: _Body, *, inputs: dict[str, torch.Tensor]) -> None:
    """Run the graph on texts that it was not made from and compare it with the model."""
    from onnxruntime import InferenceSession

    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})[-1]
    with torch.inference_mode():
        outputs = body(*inputs.values())
    expected = (outputs if body.is_cross else outputs[-1]).numpy()
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
