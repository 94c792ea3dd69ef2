"""Batches with little padding: token budgets for scoring, random runs of similar length for training."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from trans_encoder.encoders.tokens import Integers, Layout

Inputs = dict[str, torch.Tensor]

_WINDOW_BATCHES = 64
_RUNS_IN_BATCH = 4
_PADDING_TOLERATED = 0.10


def budget_batches(lengths: Integers, *, max_batch_tokens: int) -> Iterator[Integers]:
    """Yield index batches, longest inputs first, each at most `max_batch_tokens` with its padding."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        count = max(max_batch_tokens // longest, 1)
        yield order[start : start + count]
        start += count


def epoch_batches(lengths: Integers, *, batch_size: int, seed: int, epoch: int, by_length: bool) -> list[Integers]:
    """Cut one epoch into random batches; `by_length` makes each of a few runs of inputs of similar length.

    Inputs are sorted within large random windows, cut into runs, and the runs shuffled: a batch still holds short and
    long inputs, each beside others of its length. Batches of one length each would pad no less, and teach worse.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    if by_length:
        window, run = batch_size * _WINDOW_BATCHES, max(batch_size // _RUNS_IN_BATCH, 1)
        order = np.concatenate(
            [
                part[np.argsort(lengths[part], kind="stable")]
                for part in np.split(order, range(window, len(order), window))
            ]
        )
        runs = np.split(order, range(run, len(order), run))
        # The one short run of an epoch stays last, so that every batch but the last is full.
        last = len(runs) if len(runs[-1]) == run else len(runs) - 1
        order = np.concatenate([runs[i] for i in random.permutation(last)] + runs[last:])
    return np.split(order, range(batch_size, len(order), batch_size))


def split_by_length(lengths: Integers, *, at_least: int = 1) -> list[NDArray[np.intp]]:
    """Split the inputs of a batch into few groups of similar length, where that saves enough padding."""
    order = np.argsort(lengths, kind="stable")
    useful = int(lengths.sum())
    for parts in (at_least, *(parts for parts in (2, 4, 8) if parts > at_least)):
        groups = [group for group in np.array_split(order, parts) if len(group)]
        computed = sum(len(group) * int(lengths[group].max()) for group in groups)
        if computed <= useful * (1 + _PADDING_TOLERATED) or len(groups) < parts:
            break
    return groups


def assemble(texts: Sequence[Sequence[NDArray[np.int32]]], layout: Layout) -> Inputs:
    """Put special tokens around the texts of each input and pad to the longest: the encoder's input tensors."""
    rows, types = [], []
    for parts in texts:
        row: list[Sequence[int] | NDArray[np.int32]] = [layout.specials[0].ids]
        kinds: list[Sequence[int]] = [layout.specials[0].types]
        for part, text_type, special in zip(parts, layout.text_types, layout.specials[1:], strict=True):
            row += [part, special.ids]
            kinds += [(text_type,) * len(part), special.types]
        rows.append(np.concatenate([np.asarray(piece, dtype=np.int64) for piece in row]))
        if layout.has_types:
            types.append(np.concatenate([np.asarray(piece, dtype=np.int64) for piece in kinds]))
    inputs = {
        "input_ids": _padded(rows, layout.pad_id),
        "attention_mask": _padded([np.ones(len(row), dtype=np.int64) for row in rows], 0),
    }
    if layout.has_types:
        inputs["token_type_ids"] = _padded(types, layout.pad_type)
    return inputs


def _padded(rows: Sequence[NDArray[np.int64]], fill: int) -> torch.Tensor:
    block = np.full((len(rows), max(len(row) for row in rows)), fill, dtype=np.int64)
    for place, row in zip(block, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(block)
