"""The matrix products of linear layers on a CPU: oneDNN's, with weights that are packed once while they are frozen.

torch takes its products from MKL, which packs the weights anew for each of them. oneDNN's are up to a tenth faster, but
torch has them for its own compiler only, without gradients; hence the function below.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Packs = dict[tuple[nn.Linear, ...], tuple[Tensor, Tensor]]
"""Packed weights and biases of layers, each put in when it is first used."""

_ROWS = 1024
"""How many rows packed weights are laid out for; other numbers give the same."""


class _Freezing(threading.local):
    packs: Packs | None = None


_freezing = _Freezing()


@contextmanager
def frozen(packs: Packs) -> Iterator[None]:
    """Use these packed weights for this thread's products inside this block; threads may share them.

    No weight may change while its pack is in use, and nothing inside the block has gradients.
    """
    before, _freezing.packs = _freezing.packs, packs
    try:
        yield
    finally:
        _freezing.packs = before


def product(inputs: Tensor, *layers: nn.Linear, gelu: bool = False) -> Tensor:
    """Return what linear layers make of the same inputs, side by side, as one product; if asked, its GELU."""
    if not _capability() or torch.is_autocast_enabled("cpu"):
        outputs = functional.linear(inputs, *_joined(layers))
    elif _freezing.packs is not None:
        fused = gelu and _capability() == "AVX512"  # with AVX2, oneDNN's GELU is slower than torch's
        outputs = _linear(inputs, *_packed(layers, _freezing.packs), then="gelu" if fused else "none")
        gelu = gelu and not fused
    else:
        rows: Tensor = _Product.apply(inputs.flatten(0, -2), *_joined(layers))  # type: ignore[no-untyped-call]
        outputs = rows.view(*inputs.shape[:-1], -1)
    return functional.gelu(outputs) if gelu else outputs


@cache
def _capability() -> str:
    """Return the instructions of a CPU on which oneDNN's products are worth it, nothing for others."""
    capability = torch.backends.cpu.get_cpu_capability()
    known = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return capability if known and capability in ("AVX2", "AVX512") else ""


def _joined(layers: Sequence[nn.Linear]) -> tuple[Tensor, Tensor]:
    if len(layers) == 1:
        return layers[0].weight, layers[0].bias
    return torch.cat([layer.weight for layer in layers]), torch.cat([layer.bias for layer in layers])


def _packed(layers: tuple[nn.Linear, ...], packs: Packs) -> tuple[Tensor, Tensor]:
    if layers not in packs:
        weight, bias = _joined(layers)
        packs[layers] = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS), bias.detach()
    return packs[layers]


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None, *, then: str = "none") -> Tensor:
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, then, [], "none")
    return outputs


class _Product(torch.autograd.Function):
    """`functional.linear` of rows, by oneDNN but for the weights' gradient, at which MKL is as fast."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inputs, weight = ctx.saved_tensors
        return _linear(gradient, weight.t()), gradient.t() @ inputs, gradient.sum(dim=0)
