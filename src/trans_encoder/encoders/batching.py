"""Batches with little padding: token budgets for scoring, random runs of similar length for training."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from trans_encoder.encoders.tokens import Integers, SpecialTokens
from trans_encoder.runner import Inputs

BATCH_TOKENS = {"cpu": 2048, "mps": 8192, "cuda": 65536}
"""Tokens of a batch in scoring, padding included, by the type of the device."""

_WINDOW_BATCHES = 64
_RUNS_IN_BATCH = 4


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
    long inputs, next to inputs of their length. Batches of a single length would save no more padding and teach less.
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


def places_in(groups: Sequence[NDArray[np.intp]]) -> NDArray[np.int64]:
    """Return where each input of a batch is among the outputs of its groups."""
    order = np.concatenate(groups)
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


def assemble(texts: Sequence[Sequence[NDArray[np.int32]]], layout: SpecialTokens) -> Inputs:
    """Put special tokens around the texts of each input and pad to the longest: the encoder's input tensors."""
    rows = np.arange(len(texts))
    lengths = np.array([[len(part) for part in parts] for parts in texts]).reshape(-1, len(layout.text_types))
    totals = lengths.sum(axis=1) + layout.extra
    ids = np.full((len(texts), totals.max()), layout.pad_id, dtype=np.int64)
    types = np.full_like(ids, layout.pad_type)
    ends = np.zeros_like(totals)
    for place, special in enumerate(layout.specials):
        if place:
            count = lengths[:, place - 1]
            row = np.repeat(rows, count)
            column = np.arange(len(row)) + np.repeat(ends - np.cumsum(count) + count, count)
            ids[row, column] = np.concatenate([parts[place - 1] for parts in texts])
            types[row, column] = layout.text_types[place - 1]
            ends += count
        columns = ends[:, None] + np.arange(len(special.ids))
        ids[rows[:, None], columns], types[rows[:, None], columns] = special.ids, special.types
        ends += len(special.ids)
    mask = (np.arange(ids.shape[1]) < totals[:, None]).astype(np.int64)
    inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
    return {**inputs, "token_type_ids": torch.from_numpy(types)} if layout.has_types else inputs
