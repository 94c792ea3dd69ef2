"""Decorators that give commands the options which they share, written once."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from trans_encoder.cli.options import (
    Assignments,
    Columns,
    DataDir,
    EngineName,
    Json,
    KindOption,
    Loading,
    MaxTokens,
    Pooling,
    Prompt1,
    Prompt2,
    PromptOption,
    RayAddress,
    SkipBad,
    TrustRemoteCode,
    Workers,
)
from trans_encoder.cli.texts import ColumnOption, Language, LineOption, MixOption
from trans_encoder.config import Inputs
from trans_encoder.progress import show_progress

if TYPE_CHECKING:
    from trans_encoder.cli.jobs import Job

ConfigFile = Annotated[Path | None, typer.Argument(metavar="CONFIG", help="A TOML file; flags go over it.")]
PairsFile = Annotated[
    str | None,
    typer.Option("--pairs", metavar="FILES", help="JSONL, TSV, CSV, Parquet, .gz too; a folder or a glob."),
]
RawText = Annotated[
    str | None,
    typer.Option("--text", metavar="PATH", help="Raw text to mine pairs from; a bare PLM is tuned on it first."),
]
Remine = Annotated[
    bool,
    typer.Option("--remine", help="With --text: mine new pairs for each later cycle, with the bi-encoders it has."),
]
Objective = Annotated[
    Literal["simcse", "mirror", "similarities"] | None,
    typer.Option("--objective", help="With --text: how a bare PLM is tuned first; similarities, if it has teachers."),
]
TaskName = Annotated[str | None, typer.Option("--task", metavar="NAME", help="Learn from a task's pool of pairs.")]
Members = Annotated[
    list[str] | None,
    typer.Option(
        "--model", metavar="BI[=PLM]", help="A bi-encoder and what its cross-encoder starts from; repeat for a team."
    ),
]
Teachers = Annotated[
    list[str] | None,
    typer.Option(
        "--teacher",
        metavar="SPEC[=WEIGHT]",
        help="A frozen scorer beside the team: a model, lexical, bm25, tokens, or a file of scores; repeatable.",
    ),
]
Ask = Annotated[
    float | None,
    typer.Option(
        "--ask",
        metavar="FRACTION",
        help="Ask cross-encoder teachers about this share of the pairs only: where the others disagree most.",
    ),
]
PresetName = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME", help="small, paper-sts, paper-binary, or either of these with -large."),
]
Dev = Annotated[
    str | None,
    typer.Option(
        "--dev",
        metavar="FILE|TASK",
        help="Labelled pairs that choose the checkpoints; a task brings its own, unless this is none.",
    ),
]
Test = Annotated[
    list[str] | None,
    typer.Option(
        "--test", metavar="FILE|TASK", help="Evaluate the start and the result on these labelled pairs; repeatable."
    ),
]
Inductive = Annotated[bool, typer.Option("--inductive", help="Keep the task's test pairs out of the training pool.")]
MaxPairs = Annotated[
    int | None, typer.Option("--max-pairs", metavar="N", help="Number of pairs: a random sample, or mined.")
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Decides new weights, order and dropout.")]
Out = Annotated[str | None, typer.Option("--out", metavar="RUN", help="The run folder; an unfinished run continues.")]

_READING = {"columns": Columns, "skip_bad": SkipBad}
_PROMPTS = {"prompt": PromptOption, "prompt1": Prompt1, "prompt2": Prompt2}
_LOADING = {
    "kind": KindOption,
    "pooling": Pooling,
    **_PROMPTS,
    "max_tokens": MaxTokens,
    "trust_remote_code": TrustRemoteCode,
}
_JOB = {
    "config": ConfigFile,
    "pairs": PairsFile,
    "task": TaskName,
    "text": RawText,
    "line": LineOption,
    "column": ColumnOption,
    "language": Language,
    "mix": MixOption,
    "objective": Objective,
    "remine": Remine,
    "model": Members,
    "pooling": Pooling,
    **_PROMPTS,
    "teacher": Teachers,
    "ask": Ask,
    "preset": PresetName,
    "dev": Dev,
    "test": Test,
    "data_dir": DataDir,
    "inductive": Inductive,
    "max_pairs": MaxPairs,
    "seed": Seed,
    "assignments": Assignments,
    **_READING,
    "trust_remote_code": TrustRemoteCode,
    "engine": EngineName,
    "workers": Workers,
    "ray_address": RayAddress,
    "out": Out,
    "json": Json,
}
_KEYS = {
    "model": "members",
    "teacher": "teachers",
    "engine": "engine.name",
    "workers": "engine.workers",
    "ray_address": "engine.ray_address",
    **{name: f"inputs.{name}" for name in Inputs.model_fields},
}
"""The keys of settings whose option has another name."""


def takes_job(command: Callable[["Job", bool], None]) -> Callable[..., None]:
    """Make a command of a function of a job and `--json`: the arguments become the job."""

    def run(**given: Any) -> None:
        from trans_encoder.cli.jobs import prepare

        config, assignments, as_json = (given.pop(name) for name in ("config", "assignments", "json"))
        prompts, pooling = {name: given.pop(name) for name in _PROMPTS}, given.pop("pooling")
        flags = {_KEYS.get(name, name): value for name, value in given.items()}
        with show_progress():
            job = prepare(config, flags=flags, assignments=assignments or [], prompts=prompts, pooling=pooling)
            command(job, as_json)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return _with_parameters(run, _parameters(_JOB))


def takes_models(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command that takes `reading`, `loading` and `json` be called with the options that these are made of."""
    own = [each for name, each in signature(command).parameters.items() if name not in ("reading", "loading", "json")]

    @wraps(command)
    def run(**given: Any) -> None:
        from trans_encoder.cli.reading import Reading

        reading = Reading(**{name: given.pop(name) for name in _READING})
        loading = Loading(**{name: given.pop(name) for name in _LOADING})
        command(**given, reading=reading, loading=loading)

    return _with_parameters(run, [*own, *_parameters({**_READING, **_LOADING, "json": Json})])


def _parameters(options: Mapping[str, Any]) -> list[Parameter]:
    """Make a parameter of each option; flags are off by default, everything else is not given."""
    return [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=False if get_args(option)[0] is bool else None,
            annotation=option,
        )
        for name, option in options.items()
    ]


def _with_parameters(run: Callable[..., None], parameters: list[Parameter]) -> Callable[..., None]:
    # Typer asks both for what a command takes.
    run.__signature__ = signature(run).replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
