"""Work that need not be done: exact shortcuts through a model's own layers."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trans_encoder.encoders.packing import bert_like_layers, is_plain, packed_runs, unpacked


def read_first_token_only(model: nn.Sequential) -> bool:
    """Let a cross-encoder's last layer compute its first token alone, which is all that its head reads of it.

    Weights and results stay as they are. Only for layers built like BERT's (BERT, RoBERTa, ELECTRA and their kin) under
    a head of sequence classification: a cross-encoder with a pooling of its own reads every token. Returns whether the
    shortcut is taken.
    """
    if not type(getattr(model[0], "model", None)).__name__.endswith("ForSequenceClassification"):
        return False
    layers = bert_like_layers(model)
    if not layers or not is_plain(layers[-1]):
        return False
    layers[-1].forward = partial(_first_token, layers[-1])
    return True


def _first_token(layer: Any, hidden: Tensor, attention_mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
    runs = packed_runs()
    if runs is not None:
        hidden, attention_mask = unpacked(hidden[0], runs)
    first = hidden[:, :1]
    mask = None if attention_mask is None else attention_mask.reshape(len(hidden), -1, hidden.shape[1])[:, :1]
    attended = layer.attention.output(_read(layer.attention.self, first, hidden, mask), first)
    return layer.output(layer.intermediate(attended), attended)  # type: ignore[no-any-return]


def _read(attention: Any, first: Tensor, hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Let the first token of each input attend to all, without their keys and values.

    With one query an input, its product with the keys W h is that of W's transpose and the query with the tokens h, and
    the mean of the values is the value of a mean: two products an input in place of two a token. What the keys' bias
    adds is the same for all tokens, so it changes nothing.
    """
    heads = attention.num_attention_heads
    of_keys, of_values = (layer.weight.unflatten(0, (heads, -1)) for layer in (attention.key, attention.value))
    query = attention.query(first).view(len(first), heads, -1).transpose(0, 1)
    scores = torch.bmm(query, of_keys).transpose(0, 1) @ hidden.transpose(1, 2) * attention.scaling
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    shares = functional.dropout(scores.softmax(dim=-1), attention.dropout.p, attention.training)
    means = (shares @ hidden).transpose(0, 1)
    values = torch.bmm(means, of_values.transpose(1, 2)).transpose(0, 1)
    bias: Tensor = shares.sum(dim=-1, keepdim=True) * attention.value.bias.unflatten(0, (heads, -1))
    return (values + bias).flatten(1)[:, None]
