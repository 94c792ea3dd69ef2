"""Linear layers on a CPU by oneDNN, with weights that are prepacked once while a model scores.

torch's own GEMM is MKL's, which repacks the weights in every call. On AMD's CPUs oneDNN's is up to a tenth faster, on
Intel's it is not (docs/performance.md), so there torch's own is used. torch exposes oneDNN's to its compiler only,
without gradients; `_Linear` adds those.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

Prepacked = dict[tuple[nn.Linear, ...], tuple[Tensor, Tensor]]
"""Weights of layers in oneDNN's layout, and their biases; each is added when it is first used."""

_ROWS_STEP = 16
"""oneDNN compiles a kernel for each new number of rows, which costs as much as a small GEMM: so only few are used."""
_FEWEST_ROWS = 256
"""Fewer rows are not worth a kernel or prepacked weights."""

_prepacked: ContextVar[Prepacked | None] = ContextVar("prepacked", default=None)


@contextmanager
def prepacked(weights: Prepacked) -> Iterator[None]:
    """Prepack weights once for all of this thread's calls inside this block; threads may share them.

    No weight may change while this lasts, and nothing inside the block has gradients.
    """
    token = _prepacked.set(weights)
    try:
        yield
    finally:
        _prepacked.reset(token)


def rows_to_add(rows: int) -> int:
    """Return how many rows to add to an input so that oneDNN is used for it."""
    return -rows % _ROWS_STEP if rows >= _FEWEST_ROWS and _capability() else 0


def linear(rows: Tensor, *layers: nn.Linear, gelu: bool = False, plus: Tensor | None = None) -> Tensor:
    """Apply several linear layers to one input as a single GEMM; then either add `plus` or apply GELU, if asked."""
    assert not (gelu and plus is not None)
    known = _prepacked.get()
    outputs: Tensor
    if not _suits(rows):
        outputs = functional.linear(rows, *_joined(_weights(layers)))
        outputs = outputs if plus is None else outputs + plus
    elif known is not None:
        fused = gelu and _capability() == "AVX512"  # with AVX2, oneDNN's GELU is slower than torch's
        outputs = _onednn(rows, *_prepack(layers, known), then="gelu" if fused else "none", plus=plus)
        gelu = gelu and not fused
    else:
        outputs = _Linear.apply(rows, plus, *_weights(layers))  # type: ignore[no-untyped-call]
    return functional.gelu(outputs) if gelu else outputs


def _suits(rows: Tensor) -> bool:
    """Whether oneDNN is the faster way for this input."""
    return (
        len(rows) >= _FEWEST_ROWS
        and len(rows) % _ROWS_STEP == 0
        and rows.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and bool(_capability())
    )


@cache
def _capability() -> str:
    """Return the instruction set of a CPU on which oneDNN is worth it, an empty string for others."""
    capability = torch.backends.cpu.get_cpu_capability()
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return capability if available and capability in ("AVX2", "AVX512") and not is_intel() else ""


def is_intel() -> bool:
    """Whether this CPU is Intel's, as Linux and Windows say."""
    # By vendor rather than by a measurement, so that a continued run computes the same bits.
    cpus = Path("/proc/cpuinfo")
    named = cpus.read_text(encoding="utf-8") if cpus.exists() else os.environ.get("PROCESSOR_IDENTIFIER", "")
    return "GenuineIntel" in named


def _weights(layers: Sequence[nn.Linear]) -> list[Tensor]:
    """Return the layers' weights and then their biases."""
    return [layer.weight for layer in layers] + [layer.bias for layer in layers]


def _joined(weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Concatenate the weights, and the biases that follow them."""
    if len(weights) == 2:
        return weights[0], weights[1]
    half = len(weights) // 2
    return torch.cat(tuple(weights[:half])), torch.cat(tuple(weights[half:]))


def _prepack(layers: tuple[nn.Linear, ...], known: Prepacked) -> tuple[Tensor, Tensor]:
    if layers not in known:
        weight, bias = _joined(_weights(layers))
        known[layers] = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 1024), bias.detach()
    return known[layers]


def _onednn(
    rows: Tensor, weight: Tensor, bias: Tensor | None = None, *, then: str = "none", plus: Tensor | None = None
) -> Tensor:
    call = torch.ops.mkldnn._linear_pointwise
    outputs: Tensor = (
        call(rows, weight, bias, then, [], "none") if plus is None else call.binary(rows, plus, weight, bias, "add")
    )
    return outputs


class _Linear(torch.autograd.Function):
    """`functional.linear` with several layers, by oneDNN wherever it is faster than MKL."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, plus: Tensor | None, *weights: Tensor) -> Tensor:
        """Take the layers' weights and then their biases."""
        ctx.adds = plus is not None
        ctx.save_for_backward(rows, *weights)
        return _onednn(rows, *_joined(weights), plus=plus)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, *weights = ctx.saved_tensors
        # Joined again rather than saved: copies of all layers' weights would stay in memory until the backward pass.
        weight, _ = _joined(weights)
        sizes = [len(part) for part in weights[: len(weights) // 2]]
        # A GEMM with ones sums the rows in two thirds of the time of `sum`.
        of_weights, of_biases = _outer(gradient, rows), gradient.new_ones(len(gradient)) @ gradient
        of_rows = _onednn(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        of_plus = gradient if ctx.adds else None
        return of_rows, of_plus, *torch.split(of_weights, sizes), *torch.split(of_biases, sizes)


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """Return left^T @ right: by oneDNN from narrow to wide, where it is fastest."""
    if left.shape[1] == right.shape[1]:
        return left.t() @ right
    if left.shape[1] < right.shape[1]:
        return _onednn(left.t(), right.t())
    return _onednn(right.t(), left.t()).t().contiguous()
