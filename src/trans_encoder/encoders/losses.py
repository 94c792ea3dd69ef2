"""Losses between a student's raw outputs and its teachers' labels, as pure functions.

A bi-encoder's raw output is a cosine, a cross-encoder's a logit (its score is the logit's sigmoid).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]


def bce(outputs: Tensor, labels: Tensor) -> Tensor:
    """Soft binary cross-entropy of logits (Eq. 2), labels clamped to [0, 1]: a negative cosine is no probability."""
    return functional.binary_cross_entropy_with_logits(outputs, labels.clamp(0, 1), reduction="none")


def mse(outputs: Tensor, labels: Tensor) -> Tensor:
    """Squared error (Eq. 3)."""
    return (outputs - labels).square()


def log_cosh(outputs: Tensor, labels: Tensor) -> Tensor:
    """Log-cosh of the error: squared near zero, absolute far from it."""
    error = (outputs - labels).abs()
    return error + functional.softplus(-2 * error) - torch.log(torch.tensor(2.0))


LOSSES: dict[str, Loss] = {"bce": bce, "mse": mse, "log-cosh": log_cosh}
