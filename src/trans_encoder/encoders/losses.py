"""Losses between a student's outputs and its teachers' labels, as pure functions.

| loss | bi-encoder's output | cross-encoder's output | labels |
| --- | --- | --- | --- |
| bce (Eq. 2) | cosine, taken as a logit | logit | in [0, 1], or as they are where the plan's `negatives` is raw |
| mse (Eq. 3), log-cosh | cosine | probability: the logit's sigmoid | as they are |

Labels are scores, so a loss that measures a distance must be given the student's score: fitted to the logit, a label of
0.8 would become sigmoid(0.8) = 0.69 when the student labels.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]


def bce(outputs: Tensor, labels: Tensor) -> Tensor:
    """Soft binary cross-entropy of logits (Eq. 2); a label outside [0, 1] pushes the logit outwards without end."""
    return functional.binary_cross_entropy_with_logits(outputs, labels, reduction="none")


def mse(outputs: Tensor, labels: Tensor) -> Tensor:
    """Squared error (Eq. 3)."""
    return (outputs - labels).square()


def log_cosh(outputs: Tensor, labels: Tensor) -> Tensor:
    """Log-cosh of the error: squared near zero, absolute far from it."""
    error = (outputs - labels).abs()
    return error + functional.softplus(-2 * error) - torch.log(torch.tensor(2.0))


LOSSES: dict[str, Loss] = {"bce": bce, "mse": mse, "log-cosh": log_cosh}
TAKES_LOGITS = frozenset({"bce"})
"""Losses of the raw outputs; all others take scores."""


def logit_gradients(
    loss: str, probabilities: NDArray[np.floating], labels: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Return the gradient of each pair's loss with respect to the cross-encoder's logit (the paper's appendix).

    With BCE it is sigmoid(x) - y. With MSE the factor sigmoid'(x) makes it small at both ends of the scale as well.
    Labels are clamped to [0, 1].
    """
    logits = torch.logit(torch.tensor(probabilities, dtype=torch.float64), eps=1e-7).requires_grad_()
    outputs = logits if loss in TAKES_LOGITS else logits.sigmoid()
    targets = torch.tensor(labels, dtype=torch.float64).clamp(0, 1)
    (gradients,) = torch.autograd.grad(LOSSES[loss](outputs, targets).sum(), logits)
    return np.asarray(gradients.numpy(), dtype=np.float64)
