"""Options that several commands share, as groups: a parameter that is a group stands for an option for each field."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from trans_encoder.cli.options import (
    Assignments,
    DataDir,
    EngineName,
    Json,
    Pooling,
    PromptOptions,
    RayAddress,
    TrustRemoteCode,
    Workers,
)
from trans_encoder.cli.reading import MixOption, Reading, TextReading
from trans_encoder.config import Inputs

_KEYS = {
    **{name: f"inputs.{name}" for name in Inputs.model_fields},
    **{name: name for name in ("ask", "preset", "seed", "trust_remote_code")},
    "model": "members",
    "teacher": "teachers",
    "engine": "engine.name",
    "workers": "engine.workers",
    "ray_address": "engine.ray_address",
}
"""The key of the setting that each option of a run gives."""


@dataclass(frozen=True)
class JobOptions:
    """What `train` and `check` are given; flags go over the TOML file."""

    config: Annotated[Path | None, typer.Argument(metavar="CONFIG", help="A TOML file; flags go over it.")] = None
    pairs: Annotated[
        str | None, typer.Option(metavar="FILES", help="JSONL, TSV, CSV, Parquet, .gz too; a folder or a glob.")
    ] = None
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Learn from a task's pool of pairs.")] = None
    text: Annotated[
        str | None, typer.Option(metavar="PATH", help="Raw text to mine pairs from; a bare PLM is tuned on it first.")
    ] = None
    lines: TextReading = field(default_factory=TextReading)
    mix: MixOption = None
    objective: Annotated[
        Literal["simcse", "mirror", "similarities"] | None,
        typer.Option(help="With --text: how a bare PLM is tuned first; similarities, if it has teachers."),
    ] = None
    remine: Annotated[
        bool,
        typer.Option("--remine", help="With --text: mine new pairs for each later cycle, with the bi-encoders it has."),
    ] = False
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BI[=PLM]", help="A bi-encoder and what its cross-encoder starts from; repeat for a team."
        ),
    ] = None
    pooling: Pooling = None
    prompts: PromptOptions = field(default_factory=PromptOptions)
    teacher: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC[=WEIGHT]",
            help="A frozen scorer beside the team: a model, lexical, bm25, tokens, or a file of scores; repeatable.",
        ),
    ] = None
    ask: Annotated[
        float | None,
        typer.Option(
            metavar="FRACTION",
            help="Ask cross-encoder teachers about this share of the pairs only: where the others disagree most.",
        ),
    ] = None
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="small, paper-sts, paper-binary, or either of these with -large.")
    ] = None
    dev: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|TASK",
            help="Labelled pairs that choose the checkpoints; a task brings its own, unless this is none.",
        ),
    ] = None
    test: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|TASK", help="Evaluate the start and the result on these labelled pairs; repeatable."
        ),
    ] = None
    data_dir: DataDir = None
    inductive: Annotated[
        bool, typer.Option("--inductive", help="Keep the task's test pairs out of the training pool.")
    ] = False
    max_pairs: Annotated[int | None, typer.Option(metavar="N", help="Number of pairs: a random sample, or mined.")] = (
        None
    )
    seed: Annotated[int | None, typer.Option(metavar="N", help="Decides new weights, order and dropout.")] = None
    assignments: Assignments = None
    reading: Reading = field(default_factory=Reading)
    trust_remote_code: TrustRemoteCode = False
    engine: EngineName = None
    workers: Workers = None
    ray_address: RayAddress = None
    out: Annotated[str | None, typer.Option(metavar="RUN", help="The run folder; an unfinished run continues.")] = None
    json: Json = False

    def settings(self) -> dict[str, Any]:
        """Return the settings that were given as flags, by their keys."""
        given = vars(self) | vars(self.lines) | vars(self.reading)
        return {
            key: str(given[name]) if isinstance(given[name], Path) else given[name]
            for name, key in _KEYS.items()
            if not (given[name] is None or given[name] is False or given[name] == [])  # a seed of 0 equals False
        }


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command be called with the fields of its parameters that are groups of options."""

    @wraps(command)
    def run(**given: Any) -> None:
        _call(command, given)

    # Typer asks both for what a command takes.
    options = _options(command)
    run.__signature__ = Signature(list(options.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in options.items()}
    return run


def _options(taker: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a command or a group, those of groups among them in their places."""
    found: dict[str, Parameter] = {}
    for name, each in signature(taker).parameters.items():
        is_group = is_dataclass(each.annotation)
        found |= _options(each.annotation) if is_group else {name: each.replace(kind=Parameter.KEYWORD_ONLY)}
    return found


def _call(taker: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call a command or make a group, the groups that it takes first."""
    arguments = {}
    for name, each in signature(taker).parameters.items():
        is_group = is_dataclass(each.annotation)
        arguments[name] = _call(each.annotation, given) if is_group else given[name]
    return taker(**arguments)
