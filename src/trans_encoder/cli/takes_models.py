"""The options of commands that load models and read pairs, written once."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any

from trans_encoder.cli.options import (
    Columns,
    Json,
    KindOption,
    Loading,
    MaxTokens,
    Pooling,
    Prompt1,
    Prompt2,
    PromptOption,
    SkipBad,
    TrustRemoteCode,
)

_READING = {"columns": (Columns, None), "skip_bad": (SkipBad, False)}
_LOADING = {
    "kind": (KindOption, None),
    "pooling": (Pooling, None),
    "prompt": (PromptOption, None),
    "prompt1": (Prompt1, None),
    "prompt2": (Prompt2, None),
    "max_tokens": (MaxTokens, None),
    "trust_remote_code": (TrustRemoteCode, False),
}
_LAST = {"json": (Json, False)}


def takes_models(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command that takes `reading`, `loading` and `json` be called with the options that these are made of."""
    own = [each for name, each in signature(command).parameters.items() if name not in ("reading", "loading", "json")]
    shared = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
        for name, (kind, default) in {**_READING, **_LOADING, **_LAST}.items()
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        from trans_encoder.cli.reading import Reading

        reading = Reading(**{name: given.pop(name) for name in _READING})
        loading = Loading(**{name: given.pop(name) for name in _LOADING})
        command(**given, reading=reading, loading=loading)

    # Typer asks both for what a command takes.
    run.__signature__ = signature(command).replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*own, *shared)}
    return run
