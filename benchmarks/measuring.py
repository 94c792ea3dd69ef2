"""What the benchmarks measure: seconds, peak memory, useful tokens, and the machine's own matrix-multiply rate."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trans_encoder import TestSet, load_task
from trans_encoder.encoders import Encoder
from trans_encoder.fast.last_layer import reads_first_token


def matmul_rate(*, size: int = 1024, seconds: float = 2.0) -> float:
    """Return floating-point operations a second of float32 matrix products, the best of many."""
    left, right = torch.rand(size, size), torch.rand(size, size)
    best, begun = 0.0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        left @ right
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def timed(work: Callable[..., Any], *given: Any, **named: Any) -> tuple[Any, float]:
    """Return what the work returns and its seconds."""
    start = time.perf_counter()
    result = work(*given, **named)
    return result, time.perf_counter() - start


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """Sample this process's resident memory; yields a function that returns its peak in bytes."""
    peak, done = [_resident()], threading.Event()

    def sample() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], _resident())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield lambda: peak[0]
    finally:
        done.set()
        thread.join()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def forward_flops(encoder: Encoder, lengths: np.ndarray) -> float:
    """Return the useful operations of one forward pass over inputs of these lengths: matrix products, no padding.

    Where only the first token of the last layer is read, as by a cross-encoder, it takes a product with each weight an
    input, and two with its tokens for each head.
    """
    config = encoder.model.config
    width, layers = config.hidden_size, config.num_hidden_layers
    weights = sum(
        weight.numel() for name, weight in encoder.model.named_parameters() if weight.ndim == 2 and ".layer." in name
    )
    tokens, squares = float(lengths.sum()), float((lengths.astype(float) ** 2).sum())
    layer = 2 * weights / layers * tokens + 4 * width * squares
    last = layer
    if reads_first_token(encoder.model):
        last = 2 * weights / layers * len(lengths) + 4 * config.num_attention_heads * width * tokens
    return (layers - 1) * layer + last


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Return the slope of time over size in logarithms: 1 is linear growth."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def sts_tests(data_dir: str, *, most: int) -> dict[str, TestSet]:
    """Return the seven STS test sets, each cut to a number of pairs, always the same ones."""
    return {name: sampled(test, most) for name, test in load_task("sts", data_dir=data_dir).tests.items()}


def sampled(test: TestSet, most: int) -> TestSet:
    """Return a test set cut to a number of pairs."""
    return TestSet(test.name, test.pairs.sample(min(most, len(test.pairs)), seed=0))
