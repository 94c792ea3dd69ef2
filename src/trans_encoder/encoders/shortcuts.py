"""Work that need not be done: exact shortcuts through a model's own layers."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trans_encoder.encoders.packing import attend_packed, bert_like_layers, packed_runs


def read_first_token_only(model: nn.Sequential) -> bool:
    """Let a cross-encoder's last layer compute its first token alone, which is all that its head reads of it.

    Every other token of that layer takes part through its key and value. Weights and results stay as they are. Only for
    layers built like BERT's (BERT, RoBERTa, ELECTRA and their kin) under a head of sequence classification: a
    cross-encoder with a pooling of its own reads every token. Returns whether the shortcut is taken.
    """
    if not type(getattr(model[0], "model", None)).__name__.endswith("ForSequenceClassification"):
        return False
    layers = bert_like_layers(model)
    if not layers:
        return False
    layers[-1].forward = partial(_first_token, layers[-1])
    return True


def _first_token(layer: Any, hidden: Tensor, attention_mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
    attention, runs = layer.attention.self, packed_runs()
    if runs is not None:
        lengths = torch.tensor([length for count, length in runs for _ in range(count)])
        first = hidden[0].index_select(0, lengths.cumsum(0) - lengths)[:, None]
        context = attend_packed(attention, hidden[0], runs=runs, queries=first[:, 0])[:, None]
    else:
        first = hidden[:, :1]
        query, key, value = (
            projected.unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
            for projected in (attention.query(first), attention.key(hidden), attention.value(hidden))
        )
        heads = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if attention_mask is None else attention_mask[..., :1, :],
            dropout_p=attention.dropout.p if layer.training else 0.0,
            scale=attention.scaling,
        )
        context = heads.transpose(1, 2).flatten(-2)
    attended = layer.attention.output(context, first)
    return layer.output(layer.intermediate(attended), attended)  # type: ignore[no-any-return]
