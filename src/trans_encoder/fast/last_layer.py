"""The last layer for the first token only, where a head or pooling reads nothing else."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from torch.nn import functional

from trans_encoder.fast.packing import (
    active,
    bert_like_layers,
    has_hooks,
    is_plain,
    is_recomputed,
    packed_segments,
    replaced_forward,
    unpacked,
)


def reads_first_token(model: Any) -> bool:
    """Whether a bi- or cross-encoder reads nothing of its last layer but the first token."""
    if type(getattr(model[0], "model", None)).__name__.endswith("ForSequenceClassification"):
        return True
    pooling: Any = model[1] if len(model) > 1 else None
    # Without the prompt, the first token that is pooled is the first of the text.
    return type(pooling) is Pooling and pooling.pooling_mode == "cls" and pooling.include_prompt


def can_skip_tokens(model: Any) -> bool:
    """Whether `first_token_only` knows the model: BERT layers without adapters or hooks, only the first token read."""
    layers = bert_like_layers(model) if reads_first_token(model) else []
    return bool(layers) and is_plain(layers[-1]) and not has_hooks(model[0])


@contextmanager
def first_token_only(model: Any) -> Iterator[None]:
    """Replace the forward pass of the last layer inside this block; padding must be on the right."""
    last = bert_like_layers(model)[-1]
    with replaced_forward(last, partial(_last_layer, last, last.forward)):
        yield


@contextmanager
def first_token_pass(model: Any) -> Iterator[None]:
    """Do the same for this thread's passes without a runner; a model that cannot skip tokens computes them all."""
    with ExitStack() as stack:
        if can_skip_tokens(model):
            stack.enter_context(first_token_only(model))
            stack.callback(active.reset, active.set(True))
        yield


def _last_layer(
    layer: Any, plain: Any, hidden: Tensor, attention_mask: Tensor | None = None, *given: Any, **named: Any
) -> Any:
    if not active.get() or is_recomputed(layer):
        return plain(hidden, attention_mask, *given, **named)
    segments = packed_segments()
    if segments is not None:
        hidden, attention_mask = unpacked(hidden[0], segments)
    first = hidden[:, :1]
    if attention_mask is not None:
        # The first token's row of the mask. Unlike `reshape` and `len`, this can be exported for any number of inputs.
        attention_mask = attention_mask[:, None] if attention_mask.dim() == 2 else attention_mask[:, 0, :1]
    attended = layer.attention.output(_read(layer.attention.self, first, hidden, attention_mask), first)
    return layer.output(layer.intermediate(attended), attended)


def _read(attention: Any, first: Tensor, hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Let the first token of each input attend to all, without computing keys and values.

    With one query q per input, q . (W h) = (W^T q) . h, and the mean of the values is the value of the mean: two small
    matmuls per input instead of two per token. The keys' bias adds the same to all scores, so softmax cancels it.
    """
    heads = attention.num_attention_heads
    of_keys, of_values = (layer.weight.unflatten(0, (heads, -1)) for layer in (attention.key, attention.value))
    # In half precision, scores that still hold what is the same for all tokens would be too coarse.
    with torch.autocast(hidden.device.type, enabled=False):
        first, hidden = (tokens.to(of_keys.dtype) for tokens in (first, hidden))
        query = attention.query(first)[:, 0].unflatten(-1, (heads, -1)).transpose(0, 1)
        scores = torch.bmm(query, of_keys).transpose(0, 1) @ hidden.transpose(1, 2) * attention.scaling
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        shares = functional.dropout(scores.softmax(dim=-1), attention.dropout.p, attention.training)
        means = (shares @ hidden).transpose(0, 1)
        values = torch.bmm(means, of_values.transpose(1, 2)).transpose(0, 1)
        bias: Tensor = shares.sum(dim=-1, keepdim=True) * attention.value.bias.unflatten(0, (heads, -1))
        return (values + bias).flatten(1)[:, None]
