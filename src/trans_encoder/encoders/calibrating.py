"""Calibrate a cross-encoder's head to a scale of labels, so that training starts from what it already knows.

A re-ranker's logits may lie anywhere: ms-marco-MiniLM's are mostly below -5 or above 5. Trained on labels spread over
(0, 1), it would first forget its order to get the scale right. An affine map of its logits keeps the order.
"""

import logging

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from trans_encoder.data import PairSet
from trans_encoder.encoders.cross import CrossEncoder
from trans_encoder.errors import ConfigurationError

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]

_STEPS = 100
_MOST_PAIRS = 2000
_LEAST = 1e-7  # float32 cannot tell higher probabilities from 1
_RIDGE = 1e-6


def calibrate_to(encoder: CrossEncoder, labelled: PairSet) -> None:
    """Calibrate a cross-encoder's head to labels; its scores are probabilities from then on, wherever it is loaded."""
    sample = labelled if len(labelled) <= _MOST_PAIRS else labelled.sample(_MOST_PAIRS, seed=0)
    assert sample.scores is not None
    scores = np.clip(encoder.score(sample).astype(np.float64), _LEAST, 1 - _LEAST)
    slope, intercept = calibrated_line(np.log(scores / (1 - scores)), sample.scores)
    if slope == 0:
        logger.warning("%s orders the pairs against its teachers; its head is left as it was", encoder.name)
        return
    calibrate_head(encoder, slope=slope, intercept=intercept)


def calibrated_line(logits: NDArray[np.floating], labels: NDArray[np.floating]) -> tuple[float, float]:
    """Return the slope and intercept for which sigmoid(slope * logit + intercept) has the least BCE (Platt scaling).

    The slope is never negative: a cross-encoder whose order is the opposite of the labels' is not turned around.
    """
    mean, spread = float(np.mean(logits)), float(np.std(logits)) or 1.0
    inputs = np.stack([(np.asarray(logits, dtype=np.float64) - mean) / spread, np.ones(len(logits))], axis=1)
    targets = np.clip(np.asarray(labels, dtype=np.float64), 0.0, 1.0)
    line = np.zeros(2)
    for _ in range(_STEPS):
        predicted = 1 / (1 + np.exp(-inputs @ line))
        gradient = inputs.T @ (predicted - targets)
        curvature = (inputs * (predicted * (1 - predicted))[:, None]).T @ inputs + _RIDGE * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        line -= step
        if np.abs(step).max() < 1e-9:
            break
    slope = max(float(line[0]), 0.0) / spread
    return slope, float(line[1]) - slope * mean


def calibrate_head(encoder: CrossEncoder, *, slope: float, intercept: float) -> None:
    """Fold an affine map of the logits into the last linear layer; in place."""
    head = _last_linear(encoder)
    with torch.no_grad():
        head.weight.mul_(slope)
        head.bias.mul_(slope).add_(intercept)


def _last_linear(encoder: CrossEncoder) -> nn.Linear:
    """Return the layer that makes the logit."""
    linear = [module for module in encoder.model.modules() if isinstance(module, nn.Linear)]
    layers = [module for module in linear if module.out_features == 1]
    if not layers or layers[-1].bias is None:
        raise ConfigurationError(
            f"cross-encoder {encoder.name} does not end in a linear layer with a bias, so its logits cannot be "
            f"calibrated; set calibrate=false to train it as it is"
        )
    return layers[-1]
