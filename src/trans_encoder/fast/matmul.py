"""The matrix products of linear layers on a CPU: oneDNN's, with weights that are laid out once while they are frozen.

torch takes its products from MKL, which lays out the weights anew for each of them. oneDNN's are up to a tenth faster
(docs/log.md says where), but torch has them for its own compiler only, without gradients: those are in `_Product`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from trans_encoder.fast.scoped import Setting

Layouts = dict[tuple[nn.Linear, ...], tuple[Tensor, Tensor]]
"""The weights of layers as oneDNN wants them, and their biases; each is put in when it is first used."""

_ROWS_STEP = 16
"""oneDNN makes a kernel for each new number of rows, which takes as long as a small product: so few are used."""
_FEWEST_ROWS = 256
"""Products of fewer rows are not worth a kernel, nor a new layout of the weights."""


_layouts = Setting[Layouts | None](None)


def frozen(layouts: Layouts) -> AbstractContextManager[None]:
    """Lay out weights once for all of this thread's products inside this block; threads may share the layouts.

    No weight may change while its layout is in use, and nothing inside the block has gradients.
    """
    return _layouts.during(layouts)


def rows_to_add(rows: int) -> int:
    """Return how many rows of inputs to add, so that their number is one that oneDNN is used for."""
    return -rows % _ROWS_STEP if rows >= _FEWEST_ROWS and _capability() else 0


def product(rows: Tensor, *layers: nn.Linear, gelu: bool = False, plus: Tensor | None = None) -> Tensor:
    """Return what linear layers make of the same rows, side by side, as one product; plus others, and its GELU."""
    layouts = _layouts.value
    outputs: Tensor
    if not _suits(rows):
        outputs = functional.linear(rows, *_joined(_weights(layers)))
        outputs = outputs if plus is None else outputs + plus
    elif layouts is not None:
        fused = gelu and plus is None and _capability() == "AVX512"  # with AVX2, oneDNN's GELU is slower than torch's
        outputs = _linear(rows, *_laid_out(layers, layouts), then="gelu" if fused else "none", plus=plus)
        gelu = gelu and not fused
    else:
        outputs = _Product.apply(rows, plus, *_weights(layers))  # type: ignore[no-untyped-call]
    return functional.gelu(outputs) if gelu else outputs


def _suits(rows: Tensor) -> bool:
    """Tell whether oneDNN is the faster way for a product with these rows."""
    return (
        len(rows) >= _FEWEST_ROWS
        and len(rows) % _ROWS_STEP == 0
        and rows.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and bool(_capability())
    )


@cache
def _capability() -> str:
    """Return the instructions of a CPU on which oneDNN's products are worth it, nothing for others."""
    capability = torch.backends.cpu.get_cpu_capability()
    known = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return capability if known and capability in ("AVX2", "AVX512") else ""


def _weights(layers: Sequence[nn.Linear]) -> list[Tensor]:
    """Return the layers' weights and then their biases."""
    return [layer.weight for layer in layers] + [layer.bias for layer in layers]


def _joined(weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Make one weight and one bias of the weights and the biases that follow them."""
    if len(weights) == 2:
        return weights[0], weights[1]
    half = len(weights) // 2
    return torch.cat(tuple(weights[:half])), torch.cat(tuple(weights[half:]))


def _laid_out(layers: tuple[nn.Linear, ...], layouts: Layouts) -> tuple[Tensor, Tensor]:
    if layers not in layouts:
        weight, bias = _joined(_weights(layers))
        layouts[layers] = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 1024), bias.detach()
    return layouts[layers]


def _linear(
    rows: Tensor, weight: Tensor, bias: Tensor | None = None, *, then: str = "none", plus: Tensor | None = None
) -> Tensor:
    linear = torch.ops.mkldnn._linear_pointwise
    outputs: Tensor = (
        linear(rows, weight, bias, then, [], "none") if plus is None else linear.binary(rows, plus, weight, bias, "add")
    )
    return outputs


class _Product(torch.autograd.Function):
    """`functional.linear` of rows and several layers, by oneDNN, but for what MKL does faster."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, plus: Tensor | None, *weights: Tensor) -> Tensor:
        """Take the layers' weights and then their biases."""
        ctx.adds = plus is not None
        ctx.save_for_backward(rows, *weights)
        return _linear(rows, *_joined(weights), plus=plus)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, *weights = ctx.saved_tensors
        # Joined anew rather than kept: a copy of many layers' weights would stay until their turn comes.
        weight, _ = _joined(weights)
        sizes = [len(part) for part in weights[: len(weights) // 2]]
        # A product with ones sums the rows in two thirds of the time of `sum`.
        of_weights, of_biases = _outer(gradient, rows), gradient.new_ones(len(gradient)) @ gradient
        of_rows, of_plus = _linear(gradient, weight.t()), gradient if ctx.adds else None
        return of_rows, of_plus, *torch.split(of_weights, sizes), *torch.split(of_biases, sizes)


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of one's columns with the other's: by oneDNN from narrow to wide, where it is fastest."""
    if left.shape[1] == right.shape[1]:
        return left.t() @ right
    if left.shape[1] < right.shape[1]:
        return _linear(left.t(), right.t())
    return _linear(right.t(), left.t()).t().contiguous()
