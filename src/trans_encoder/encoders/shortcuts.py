"""Work that need not be done: exact shortcuts through a model's own layers."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_PARTS = {
    "": {"attention", "intermediate", "output"},
    "attention": {"self", "output"},
    "attention.self": {"query", "key", "value", "dropout"},
}
"""What a layer built like BERT's is made of, and nothing else: a norm before its attention would be passed over."""


def read_first_token_only(model: nn.Sequential) -> bool:
    """Let a cross-encoder's last layer compute its first token alone, which is all that its head reads of it.

    Every other token of that layer takes part through its key and value. Weights and results stay as they are. Only for
    layers built like BERT's (BERT, RoBERTa, ELECTRA and their kin) under a head of sequence classification: a
    cross-encoder with a pooling of its own reads every token. Returns whether the shortcut is taken.
    """
    if not type(getattr(model[0], "model", None)).__name__.endswith("ForSequenceClassification"):
        return False
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    layers = [stack[-1] for stack in stacks if len(stack) and _is_bert_like(stack[-1])]
    if len(layers) != 1:
        return False
    layers[0].forward = partial(_first_token, layers[0])
    return True


def _is_bert_like(layer: nn.Module) -> bool:
    modules = dict(layer.named_modules())
    parts = {place: {name for name, _ in modules[place].named_children()} for place in _PARTS if place in modules}
    implementation = getattr(getattr(getattr(layer, "attention", None), "self", None), "config", None)
    return (
        parts == _PARTS
        and not getattr(layer, "is_decoder", False)
        and getattr(implementation, "_attn_implementation", None) == "sdpa"
    )


def _first_token(layer: Any, hidden: Tensor, attention_mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
    attention, first = layer.attention.self, hidden[:, :1]
    query, key, value = (
        projected.unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
        for projected in (attention.query(first), attention.key(hidden), attention.value(hidden))
    )
    context = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=None if attention_mask is None else attention_mask[..., :1, :],
        dropout_p=attention.dropout.p if layer.training else 0.0,
        scale=attention.scaling,
    )
    attended = layer.attention.output(context.transpose(1, 2).flatten(-2), first)
    return layer.output(layer.intermediate(attended), attended)  # type: ignore[no-any-return]


class VocabularyGradient:
    """One dense gradient of the word embeddings, in which a step touches only the rows of its own tokens.

    Left to itself, every forward pass of a step gets a new gradient as large as the vocabulary, filled with zeros.
    """

    def __init__(self, model: nn.Module) -> None:
        """Ask the largest embedding of the model for the rows that have a gradient, and no others."""
        tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
        table = max(tables, key=lambda embedding: embedding.num_embeddings)
        table.sparse = True
        self._weight = table.weight
        self._dense = torch.zeros_like(table.weight)
        self._rows = torch.empty(0, dtype=torch.int64)

    def gather(self) -> None:
        """Put the rows of this step into the dense gradient, which is what clipping and the optimiser expect."""
        sparse = self._weight.grad
        if sparse is not None:
            self._dense.index_fill_(0, self._rows, 0.0)
            self._rows = sparse._indices()[0]
            self._dense.index_add_(0, self._rows, sparse._values())
            self._weight.grad = self._dense
