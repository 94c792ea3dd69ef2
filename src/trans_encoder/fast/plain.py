"""What every runner shares: types, and groups of inputs of similar length."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

Inputs = dict[str, Any]
"""What a model takes: token ids, attention mask and, where it knows them, token types, as tensors with a row for each
input; and what holds for all of them, such as the length of their prompt.
"""
Lengths = NDArray[np.int64]
Forward = Callable[[nn.Module, Inputs], Tensor]
"""One forward pass of a model: what is wanted of its outputs."""

_PADDING_TOLERATED = 0.10


def split_by_length(lengths: Lengths, *, at_least: int = 1) -> list[NDArray[np.intp]]:
    """Split the inputs of a batch into few groups of similar length, where that saves enough padding."""
    order = np.argsort(lengths, kind="stable")
    useful = int(lengths.sum())
    for parts in (at_least, *(parts for parts in (2, 4, 8) if parts > at_least)):
        groups = [group for group in np.array_split(order, parts) if len(group)]
        computed = sum(len(group) * int(lengths[group].max()) for group in groups)
        if computed <= useful * (1 + _PADDING_TOLERATED) or len(groups) < parts:
            break
    return groups
