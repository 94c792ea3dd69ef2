"""Scores by several passes with dropout: the mean of a model's thinned copies, which err differently."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from trans_encoder.data import PairSet, Scores
from trans_encoder.encoders.bi import BiEncoder
from trans_encoder.encoders.cross import CrossEncoder
from trans_encoder.errors import ConfigurationError


def mean_with_dropout(encoder: BiEncoder | CrossEncoder, pairs: PairSet, *, passes: int, seed: int = 0) -> Scores:
    """Score pairs several times with the model's own dropout and return the mean.

    The encoder must be loaded with `fast=False`: threads that share torch's generator would draw in no fixed order.
    """
    total = np.zeros(len(pairs), dtype=np.float64)
    devices = [encoder.device] if encoder.device.type == "cuda" else []
    with _dropping(encoder), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        for _ in range(passes):
            total += encoder.score(pairs)
    return (total / passes).astype(np.float32)


@contextmanager
def _dropping(encoder: BiEncoder | CrossEncoder) -> Iterator[None]:
    """Let the layers of dropout drop inside this block although the model is not being trained."""
    layers = [each for each in encoder.model.modules() if isinstance(each, nn.Dropout) and each.p > 0]
    if not layers:
        raise ConfigurationError(f"{encoder.name} has no dropout, so all its passes would be alike; set passes=0")
    for layer in layers:
        layer.forward = partial(functional.dropout, p=layer.p, training=True)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
