"""Work that need not be done: exact shortcuts through a model's own layers."""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from torch.nn import functional

from trans_encoder.fast.packing import bert_like_layers, is_plain, is_recomputed, packed_runs, unpacked
from trans_encoder.fast.scoped import Setting

_first_only = Setting(False)


def first_token_only(wanted: bool = True) -> AbstractContextManager[None]:
    """Let this thread's passes compute no other token of the last layer inside this block; padding is on the right."""
    return _first_only.during(wanted)


def can_read_first_token_only(model: Any) -> bool:
    """Prepare a bi- or cross-encoder for `first_token_only`; tell whether it is built so that it can be.

    Its last layer must be built like BERT's (BERT, RoBERTa, ELECTRA and their kin), and its head or pooling must read
    nothing but the first token.
    """
    layers = bert_like_layers(model) if reads_first_token(model) else []
    if not layers or not is_plain(layers[-1]):
        return False
    layers[-1].forward = partial(_last_layer, layers[-1], layers[-1].forward)
    return True


def reads_first_token(model: Any) -> bool:
    """Tell whether a bi- or cross-encoder reads nothing of its last layer but the first token."""
    if type(getattr(model[0], "model", None)).__name__.endswith("ForSequenceClassification"):
        return True
    pooling: Any = model[1] if len(model) > 1 else None
    # Without the prompt, the first token that is pooled is the first of the text.
    return type(pooling) is Pooling and pooling.pooling_mode == "cls" and pooling.include_prompt


def _last_layer(
    layer: Any, whole: Any, hidden: Tensor, attention_mask: Tensor | None = None, *given: Any, **named: Any
) -> Any:
    if not _first_only.value or is_recomputed(layer):
        return whole(hidden, attention_mask, *given, **named)
    runs = packed_runs()
    if runs is not None:
        hidden, attention_mask = unpacked(hidden[0], runs)
    first = hidden[:, :1]
    mask = None if attention_mask is None else attention_mask.reshape(len(hidden), -1, hidden.shape[1])[:, :1]
    attended = layer.attention.output(_read(layer.attention.self, first, hidden, mask), first)
    return layer.output(layer.intermediate(attended), attended)


def _read(attention: Any, first: Tensor, hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Let the first token of each input attend to all, without their keys and values.

    With one query an input, its product with the keys W h is that of W's transpose and the query with the tokens h, and
    the mean of the values is the value of a mean: two products an input in place of two a token. What the keys' bias
    adds is the same for all tokens, so it changes nothing.
    """
    heads = attention.num_attention_heads
    of_keys, of_values = (layer.weight.unflatten(0, (heads, -1)) for layer in (attention.key, attention.value))
    # In half precision, scores that still hold what is the same for all tokens would be too coarse.
    with torch.autocast(hidden.device.type, enabled=False):
        first, hidden = (tokens.to(of_keys.dtype) for tokens in (first, hidden))
        query = attention.query(first).view(len(first), heads, -1).transpose(0, 1)
        scores = torch.bmm(query, of_keys).transpose(0, 1) @ hidden.transpose(1, 2) * attention.scaling
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        shares = functional.dropout(scores.softmax(dim=-1), attention.dropout.p, attention.training)
        means = (shares @ hidden).transpose(0, 1)
        values = torch.bmm(means, of_values.transpose(1, 2)).transpose(0, 1)
        bias: Tensor = shares.sum(dim=-1, keepdim=True) * attention.value.bias.unflatten(0, (heads, -1))
        return (values + bias).flatten(1)[:, None]
