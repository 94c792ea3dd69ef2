"""Dynamic 8-bit quantisation of a graph, and what it costs."""

import logging
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics  # ships with every Python, so there is always text to compare on
from typing import Any

import numpy as np

from trans_encoder.data import PairSet, TestSet
from trans_encoder.encoders import Encoder
from trans_encoder.errors import RunError
from trans_encoder.evaluation.evaluate import measure
from trans_encoder.evaluation.metrics import spearman

_PAIRS = 500


@dataclass(frozen=True)
class Loss:
    """What a quantised model loses."""

    data: str
    """What it was measured on."""
    pairs: int
    agreement: float
    """Spearman's rho x100 between the scores of both models."""
    before: float | None = None
    """The metric of a labelled set, x100, of the model itself."""
    after: float | None = None
    """The same of the quantised model."""

    def __str__(self) -> str:
        text = f"agreement {self.agreement:.2f} (Spearman x100 of both models' scores on {self.pairs:,} pairs)"
        if self.before is None or self.after is None:
            return f"{text} of {self.data}"
        return f"{self.before:.2f} before, {self.after:.2f} after on {self.data}; {text}"


def quantise(graph: Path, out: Path) -> None:
    """Quantise the weights of all matmuls to 8 bits, each column by its own scale; activations while it runs."""
    from onnx import load
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = load(graph)
    # The exporter's shapes of inner values may contradict what ONNX infers, which the quantiser refuses.
    del model.graph.value_info[:]
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)  # it advises to run a tool of its own first
    try:
        # With 8 bits on both sides AVX2 saturates sums of two products; 7 bits of weights cannot overflow.
        quantize_dynamic(
            model,
            out,
            op_types_to_quantize=["MatMul", "Gemm"],
            nodes_to_exclude=_by_head(model),
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )
    finally:
        logging.getLogger().setLevel(level)
    done = {node.op_type for node in load(out, load_external_data=False).graph.node}
    if not done & {"MatMulInteger", "DynamicQuantizeMatMul"}:
        raise RunError(f"nothing in {graph.name} could be quantised; export without --int8")


def _by_head(model: Any) -> list[str]:
    """Return the products that have a matrix of weights for each head, which onnxruntime cannot quantise by column."""
    shapes = {weights.name: weights.dims for weights in model.graph.initializer}
    return [node.name for node in model.graph.node if any(len(shapes.get(name, ())) > 2 for name in node.input)]


def measure_loss(model: Encoder, quantised: Encoder, *, dev: TestSet | PairSet | None = None) -> Loss:
    """Compare a quantised model with the model that it was made from."""
    test = dev if isinstance(dev, TestSet) else None
    given = dev.pairs if isinstance(dev, TestSet) else dev
    pairs = reference_pairs() if given is None else given
    scores, others = (np.asarray(encoder.score(pairs)) for encoder in (model, quantised))
    agreement = spearman(others, scores)
    if test is None:
        name = "the pairs given" if dev else "Python's documentation"
        return Loss(data=name, pairs=len(pairs), agreement=agreement)
    return Loss(test.name, len(pairs), agreement, measure(scores, test), measure(others, test))


def reference_pairs() -> PairSet:
    """Pair passages of Python's documentation with the first, then the second, ... that follows."""
    passages = [
        " ".join(part.split())[:1000]
        for _, topic in sorted(topics.items())
        for part in topic.split("\n\n")
        if len(part.split()) > 5
    ]
    passages = list(dict.fromkeys(passages))[::7]
    places = np.arange(_PAIRS) % len(passages)
    ahead = 1 + np.arange(_PAIRS) % 5
    right = [passages[(place + step) % len(passages)] for place, step in zip(places, ahead, strict=True)]
    return PairSet.from_lists([passages[place] for place in places], right)
