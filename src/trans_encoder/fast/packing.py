"""Forward passes without padding: all tokens of a batch are packed into one row; only attention sees the inputs.

Neighbouring inputs of equal length share one attention call, so inputs should come sorted by length.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import GELUActivation

from trans_encoder.fast.matmul import linear, rows_to_add

_FAMILIES = {"bert", "roberta", "xlm-roberta", "camembert", "electra"}
"""Model types whose inputs are token ids, types and positions, and nothing else."""

_PARTS = {
    "": {"attention", "intermediate", "output"},
    "attention": {"self", "output"},
    "attention.self": {"query", "key", "value", "dropout"},
    "attention.output": {"dense", "dropout", "LayerNorm"},
    "intermediate": {"dense", "intermediate_act_fn"},
    "output": {"dense", "dropout", "LayerNorm"},
}
"""The submodules of a BERT layer, and no others: a norm before its attention, for example, would be skipped."""

Segments = list[tuple[int, int]]
"""Runs of neighbouring inputs of equal length in a packed row: (number of inputs, their length)."""

active: ContextVar[bool] = ContextVar("active", default=False)
"""Whether the pass in this thread is a runner's; any other call of a model inside the block goes the plain way."""
_segments: ContextVar[Segments | None] = ContextVar("segments", default=None)


def packed_segments() -> Segments | None:
    """Return what the packed row of this thread's pass consists of, or None outside of a packed pass."""
    return _segments.get()


def packable(model: Any) -> bool:
    """Whether a bi- or cross-encoder is one of those that `packing` knows, without hooks or adapters."""
    body, layers = _body_of(model), bert_like_layers(model)
    return (
        body is not None
        and body.config.model_type in _FAMILIES
        and not body.config.output_hidden_states  # those of every layer would have to be unpacked as well
        and len(layers) == body.config.num_hidden_layers
        and all(is_plain(layer) for layer in layers)
        and not has_hooks(model[0])
    )


@contextmanager
def packing(model: Any) -> Iterator[None]:
    """Replace the forward passes of a packable model's body and layers inside this block."""
    body, layers = _body_of(model), bert_like_layers(model)
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(replaced_forward(layer, partial(_layer, layer, layer.forward)))
        stack.enter_context(replaced_forward(body, partial(_body, body, layers[0], body.forward)))
        yield


@contextmanager
def replaced_forward(module: Any, forward: Any) -> Iterator[None]:
    """Replace a module's forward inside this block."""
    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


def is_recomputed(layer: Any) -> bool:
    """Whether gradient checkpointing will re-run this layer in the backward pass, when the segments are not known."""
    return bool(layer.training and getattr(layer, "gradient_checkpointing", False))


def _body_of(model: Any) -> Any:
    return getattr(getattr(model[0], "model", None), "base_model", None)


def _body(
    body: Any, layer: Any, plain: Any, input_ids: Tensor, attention_mask: Tensor | None = None, **given: Any
) -> Any:
    """Run the body on packed tokens; its output has the shape that the plain pass gives, zeros for padding."""
    wanted = active.get() and not is_recomputed(layer)
    mask = attention_mask.bool() if attention_mask is not None and wanted else None
    if mask is None or (mask[:, 1:] & ~mask[:, :-1]).any():  # the last: padding on the left
        return plain(input_ids=input_ids, attention_mask=attention_mask, **given)
    types = given.pop("token_type_ids", None)
    given.pop("position_ids", None)
    first = getattr(body.embeddings, "padding_idx", -1) + 1  # RoBERTa counts positions from after its padding
    positions = torch.arange(first, first + mask.shape[1]).expand(mask.shape)
    lengths, counts = torch.unique_consecutive(mask.sum(dim=1), return_counts=True)
    segments = list(zip(counts.tolist(), lengths.tolist(), strict=True))
    places = mask.flatten().nonzero().squeeze(1)
    # oneDNN compiles a kernel for each new number of rows, so passes are rounded up to a few numbers.
    filling = rows_to_add(len(places))
    if filling:
        segments.append((1, filling))

    def row(tokens: Tensor) -> Tensor:
        """Pack the tokens; one more input, which is never read, rounds up their number."""
        return torch.cat([tokens[mask], tokens[0, :1].expand(filling)])[None]

    token = _segments.set(segments)
    try:
        output = plain(
            input_ids=row(input_ids),
            token_type_ids=None if types is None else row(types),
            position_ids=row(positions),
            **given,
        )
    finally:
        _segments.reset(token)
    tokens = output.last_hidden_state
    if tokens.shape[1] == 1:  # only the first token of each input was computed
        output.last_hidden_state = tokens[: len(mask)]
        if output.get("pooler_output") is not None:
            output.pooler_output = output.pooler_output[: len(mask)]
    else:
        output.last_hidden_state = _placed(tokens[0, : len(places)], places, mask)
        # The pooler has seen one row, so it knows the first token of the first input only: run it again.
        if output.get("pooler_output") is not None:
            output.pooler_output = body.pooler(output.last_hidden_state)
    return output


def unpacked(tokens: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
    """Give each input of a packed row a row of its own, with zeros for padding; also return the attention mask."""
    lengths = torch.tensor([length for count, length in segments for _ in range(count)])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    return _placed(tokens, mask.flatten().nonzero().squeeze(1), mask), mask


def _placed(tokens: Tensor, places: Tensor, mask: Tensor) -> Tensor:
    grid = tokens.new_zeros(mask.numel(), tokens.shape[-1]).index_copy(0, places, tokens)
    return grid.view(*mask.shape, -1)


def _layer(layer: Any, plain: Any, hidden: Tensor, *given: Any, **named: Any) -> Any:
    """Run a layer on packed tokens, in fewer operators than its modules take."""
    segments = _segments.get()
    if segments is None:
        return plain(hidden, *given, **named)
    (tokens,) = hidden
    context = _attend(layer.attention.self, tokens, segments)
    attended = _added(layer.attention.output, context, to=tokens)
    return _added(layer.output, _widened(layer.intermediate, attended), to=attended)[None]


def _added(output: Any, inputs: Tensor, *, to: Tensor) -> Tensor:
    if output.training and output.dropout.p:
        return output.LayerNorm(output.dropout(linear(inputs, output.dense)) + to)  # type: ignore[no-any-return]
    return output.LayerNorm(linear(inputs, output.dense, plus=to))  # type: ignore[no-any-return]


def _widened(intermediate: Any, inputs: Tensor) -> Tensor:
    activation = intermediate.intermediate_act_fn
    if isinstance(activation, GELUActivation):
        return linear(inputs, intermediate.dense, gelu=True)
    return activation(linear(inputs, intermediate.dense))  # type: ignore[no-any-return]


def is_plain(layer: Any) -> bool:
    """Whether a layer's linear modules are nothing but weights and biases: no adapters, nothing quantised."""
    attention = layer.attention.self
    linears = (attention.query, attention.key, attention.value, layer.attention.output.dense)
    return all(
        type(module) is nn.Linear and module.bias is not None
        for module in (*linears, layer.intermediate.dense, layer.output.dense)
    )


def has_hooks(parent: nn.Module) -> bool:
    """Whether anything inside a module has hooks or a replaced forward, which would be skipped or see other shapes."""
    inside = [module for module in parent.modules() if module is not parent]
    return any(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
        for module in inside
    ) or any("forward" in vars(module) for module in inside if not isinstance(module, nn.Embedding))


def _attend(attention: Any, tokens: Tensor, segments: Segments) -> Tensor:
    """Let all tokens attend to the tokens of their own input; return the joined heads."""
    # One GEMM for all three projections; attention then takes one call for each run of equal lengths, because a
    # block-diagonal mask over the whole row costs up to twice as much (docs/log.md).
    rows = linear(tokens, attention.query, attention.key, attention.value)
    rows = rows.view(len(rows), 3, attention.num_attention_heads, -1)
    cut = torch.split(rows, [count * length for count, length in segments])
    return torch.cat(
        [_attend_run(attention, run.view(*size, *run.shape[1:])) for run, size in zip(cut, segments, strict=True)]
    )


def _attend_run(attention: Any, run: Tensor) -> Tensor:
    """Attend within inputs of one length; `run` is (inputs, tokens, projections, heads, width of a head)."""
    query, key, value = run.permute(2, 0, 3, 1, 4)
    dropout = attention.dropout.p if attention.training else 0.0
    heads = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=attention.scaling)
    return heads.transpose(1, 2).flatten(0, 1).flatten(-2)


def bert_like_layers(model: nn.Module) -> list[Any]:
    """Return the layers of a model if its only stack is one of BERT layers, else none."""
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
