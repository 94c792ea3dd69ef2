"""Passes without padding: the tokens of all inputs stand in one row, and only attention sees each input by itself.

Inputs of one length that stand side by side are attended to together, so inputs should come sorted by length.
"""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import GELUActivation

from trans_encoder.fast.matmul import product, rows_to_add
from trans_encoder.fast.scoped import Setting

_FAMILIES = {"bert", "roberta", "xlm-roberta", "camembert", "electra"}
"""Types of models whose inputs are words, types and positions, and nothing else."""

_PARTS = {
    "": {"attention", "intermediate", "output"},
    "attention": {"self", "output"},
    "attention.self": {"query", "key", "value", "dropout"},
    "attention.output": {"dense", "dropout", "LayerNorm"},
    "intermediate": {"dense", "intermediate_act_fn"},
    "output": {"dense", "dropout", "LayerNorm"},
}
"""What a layer built like BERT's is made of, and nothing else: a norm before its attention would be passed over."""

Runs = list[tuple[int, int]]
"""How many inputs of which length stand side by side, from the first input to the last."""


_wanted = Setting(False)
_runs = Setting[Runs | None](None)


def packed_runs() -> Runs | None:
    """Return what is in the packed row that this thread's model has before it, if it is packed."""
    return _runs.value


def packed(wanted: bool = True) -> AbstractContextManager[None]:
    """Let this thread's passes through models that can be packed compute no padding inside this block."""
    return _wanted.during(wanted)


def can_be_packed(model: Any) -> bool:
    """Prepare a bi- or cross-encoder for `packed`; tell whether it is built so that it can be."""
    body = getattr(getattr(model[0], "model", None), "base_model", None)
    layers = bert_like_layers(model)
    if body is None or body.config.model_type not in _FAMILIES or len(layers) != body.config.num_hidden_layers:
        return False
    if not all(is_plain(layer) for layer in layers):
        return False
    for layer in layers:
        layer.forward = partial(_layer, layer, layer.forward)
    body.forward = partial(_body, body, layers[0], body.forward)
    return True


def is_recomputed(layer: Any) -> bool:
    """Tell whether a layer is computed again for its gradients, later, when nobody asks for shortcuts."""
    return bool(layer.training and getattr(layer, "gradient_checkpointing", False))


def _body(
    body: Any, layer: Any, whole: Any, input_ids: Tensor, attention_mask: Tensor | None = None, **given: Any
) -> Any:
    """Do the pass of a body on packed tokens; tokens leave it where they were, with zeros for the padding."""
    wanted = _wanted.value and not is_recomputed(layer)
    mask = attention_mask.bool() if attention_mask is not None and wanted else None
    if mask is None or (mask[:, 1:] & ~mask[:, :-1]).any():  # the last: padding on the left
        return whole(input_ids=input_ids, attention_mask=attention_mask, **given)
    types = given.pop("token_type_ids", None)
    given.pop("position_ids", None)
    first = getattr(body.embeddings, "padding_idx", -1) + 1  # RoBERTa counts positions from after its padding
    positions = torch.arange(first, first + mask.shape[1]).expand(mask.shape)
    lengths, counts = torch.unique_consecutive(mask.sum(dim=1), return_counts=True)
    runs = list(zip(counts.tolist(), lengths.tolist(), strict=True))
    places = mask.flatten().nonzero().squeeze(1)
    filling = rows_to_add(len(places))
    if filling:
        runs.append((1, filling))

    def row(tokens: Tensor) -> Tensor:
        """Put the tokens side by side; one more input, which nobody reads, makes their number round."""
        return torch.cat([tokens[mask], tokens[0, :1].expand(filling)])[None]

    with _runs.during(runs):
        output = whole(
            input_ids=row(input_ids),
            token_type_ids=None if types is None else row(types),
            position_ids=row(positions),
            **given,
        )
    tokens = output.last_hidden_state
    if tokens.shape[1] == 1:  # the first token of each input
        output.last_hidden_state = tokens[: len(mask)]
        if output.get("pooler_output") is not None:
            output.pooler_output = output.pooler_output[: len(mask)]
    else:
        output.last_hidden_state = _placed(tokens[0, : len(places)], places, mask)
        if output.get("pooler_output") is not None:
            output.pooler_output = body.pooler(output.last_hidden_state)
    return output


def unpacked(tokens: Tensor, runs: Runs) -> tuple[Tensor, Tensor]:
    """Give each input of a packed row a row of its own, with zeros for the padding; also tell which are tokens."""
    lengths = torch.tensor([length for count, length in runs for _ in range(count)])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    return _placed(tokens, mask.flatten().nonzero().squeeze(1), mask), mask


def _placed(tokens: Tensor, places: Tensor, mask: Tensor) -> Tensor:
    grid = tokens.new_zeros(mask.numel(), tokens.shape[-1]).index_copy(0, places, tokens)
    return grid.view(*mask.shape, -1)


def _layer(layer: Any, whole: Any, hidden: Tensor, *given: Any, **named: Any) -> Any:
    """Do the pass of a layer on packed tokens, in fewer steps than its modules take."""
    runs = _runs.value
    if runs is None:
        return whole(hidden, *given, **named)
    (tokens,) = hidden
    context = _attend(layer.attention.self, tokens, runs)
    attended = _added(layer.attention.output, context, to=tokens)
    return _added(layer.output, _widened(layer.intermediate, attended), to=attended)[None]


def _added(output: Any, inputs: Tensor, *, to: Tensor) -> Tensor:
    if output.training and output.dropout.p:
        return output.LayerNorm(output.dropout(product(inputs, output.dense)) + to)  # type: ignore[no-any-return]
    return output.LayerNorm(product(inputs, output.dense, plus=to))  # type: ignore[no-any-return]


def _widened(intermediate: Any, inputs: Tensor) -> Tensor:
    activation = intermediate.intermediate_act_fn
    if isinstance(activation, GELUActivation):
        return product(inputs, intermediate.dense, gelu=True)
    return activation(product(inputs, intermediate.dense))  # type: ignore[no-any-return]


def is_plain(layer: Any) -> bool:
    """Tell whether a layer's products are those of its weights and biases: no adapters, nothing quantised."""
    attention = layer.attention.self
    linears = (attention.query, attention.key, attention.value, layer.attention.output.dense)
    return all(
        type(linear) is nn.Linear and linear.bias is not None
        for linear in (*linears, layer.intermediate.dense, layer.output.dense)
    )


def _attend(attention: Any, tokens: Tensor, runs: Runs) -> Tensor:
    """Let all tokens attend to the tokens of their own input; return the joined heads."""
    rows = product(tokens, attention.query, attention.key, attention.value)
    rows = rows.view(len(rows), 3, attention.num_attention_heads, -1)
    cut = torch.split(rows, [count * length for count, length in runs])
    return torch.cat(
        [_attend_run(attention, run.view(*size, *run.shape[1:])) for run, size in zip(cut, runs, strict=True)]
    )


def _attend_run(attention: Any, run: Tensor) -> Tensor:
    """Attend within inputs of one length, given as inputs, tokens, projections, heads and their width."""
    query, key, value = run.permute(2, 0, 3, 1, 4)
    dropout = attention.dropout.p if attention.training else 0.0
    heads = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=attention.scaling)
    return heads.transpose(1, 2).flatten(0, 1).flatten(-2)


def bert_like_layers(model: nn.Module) -> list[Any]:
    """Return the layers of a model if all of its stack are built like BERT's, and it has one stack."""
    stacks = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList) and len(module)]
    layers = [stack for stack in stacks if all(_is_bert_like(layer) for layer in stack)]
    return layers[0] if len(layers) == 1 else []


def _is_bert_like(layer: nn.Module) -> bool:
    modules = dict(layer.named_modules())
    parts = {place: {name for name, _ in modules[place].named_children()} for place in _PARTS if place in modules}
    implementation = getattr(getattr(getattr(layer, "attention", None), "self", None), "config", None)
    return (
        parts == _PARTS
        and not getattr(layer, "is_decoder", False)
        and getattr(implementation, "_attn_implementation", None) == "sdpa"
    )
