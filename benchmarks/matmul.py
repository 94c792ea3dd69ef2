"""Matrix products of a linear layer by MKL, which is torch's own way, and by oneDNN; what a new number of rows costs.

    python benchmarks/matmul.py
    ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/matmul.py

One thread, GFLOP a second: the median of many products, operands warm.
"""

from collections.abc import Callable
from statistics import median

import torch
from measuring import timed
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

SHAPES = [(rows, width, wide) for rows in (512, 2048) for width, wide in ((256, 1024), (384, 1536), (768, 3072))]

COLUMNS = (
    "forward, MKL",
    "oneDNN",
    "oneDNN, laid out",
    "and GELU, MKL",
    "oneDNN, laid out",
    "inputs' gradient, MKL",
    "oneDNN",
    "weights' gradient, MKL",
    "oneDNN",
    "oneDNN, turned",
)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None, *, then: str = "none") -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, then, [], "none")


def rate(work: Callable[[], Tensor], flops: float, *, times: int = 40) -> str:
    work()
    return f"{flops / median(timed(work)[1] for _ in range(times)) / 1e9:.0f}"


def rates(rows: int, width: int, wide: int) -> list[str]:
    """Return the rates of a layer's products: forward, its GELU, and the gradients of inputs and weights."""
    inputs, outputs = torch.randn(rows, width), torch.randn(rows, wide)
    weight, bias = torch.randn(wide, width), torch.randn(wide)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    flops = 2 * rows * width * wide
    return [
        rate(lambda: functional.linear(inputs, weight, bias), flops),
        rate(lambda: linear(inputs, weight, bias), flops),
        rate(lambda: linear(inputs, laid_out, bias), flops),
        rate(lambda: functional.gelu(functional.linear(inputs, weight, bias)), flops),
        rate(lambda: linear(inputs, laid_out, bias, then="gelu"), flops),
        rate(lambda: outputs @ weight, flops),
        rate(lambda: linear(outputs, weight.t()), flops),
        rate(lambda: outputs.t() @ inputs, flops),
        rate(lambda: linear(outputs.t(), inputs.t()), flops),
        rate(lambda: linear(inputs.t(), outputs.t()).t().contiguous(), flops),
    ]


def cost_of_new_rows(*, width: int = 256, wide: int = 1024) -> tuple[float, float]:
    """Return the milliseconds of a product of about 500 rows: of a number that was seen before, and of a new one."""
    inputs, weight, bias = torch.randn(600, width), torch.randn(wide, width), torch.randn(wide)
    seen = median(timed(linear, inputs[:500], weight, bias)[1] for _ in range(50))
    new = median(timed(linear, inputs[:rows], weight, bias)[1] for rows in range(501, 551))
    return seen * 1e3, new * 1e3


def main() -> None:
    """Print a row for each shape."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    table = Table("rows, in, out", *COLUMNS)
    for shape in SHAPES:
        table.add_row(str(shape), *rates(*shape))
    Console(width=160).print(table)
    seen, new = cost_of_new_rows()
    print(f"{torch.backends.cpu.get_cpu_capability()}; a product of about 500 rows by oneDNN takes {seen:.2f} ms,")
    print(f"one of a number of rows that was not seen before {new:.2f} ms")


if __name__ == "__main__":
    main()
