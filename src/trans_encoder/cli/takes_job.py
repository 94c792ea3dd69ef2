"""The arguments that `train` and `check` share, written once."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trans_encoder.cli.options import (
    Columns,
    DataDir,
    EngineName,
    Json,
    Prompt1,
    Prompt2,
    PromptOption,
    RayAddress,
    SkipBad,
    TrustRemoteCode,
    Workers,
)
from trans_encoder.cli.texts import ColumnOption, Language, LineOption, MixOption
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
        help="A frozen scorer beside the team: a model, lexical, tokens, or a file of scores; repeatable.",
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
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, such as cross.learning_rate=1e-4; repeatable."),
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Decides new weights, order and dropout.")]
Out = Annotated[str | None, typer.Option("--out", metavar="RUN", help="The run folder; an unfinished run continues.")]


def takes_job(command: Callable[["Job", bool], None]) -> Callable[..., None]:
    """Make a command of a function of a job and `--json`: the arguments become the job."""

    def run(
        config: ConfigFile = None,
        pairs: PairsFile = None,
        task: TaskName = None,
        text: RawText = None,
        line: LineOption = None,
        column: ColumnOption = None,
        language: Language = None,
        mix: MixOption = None,
        objective: Objective = None,
        remine: Remine = False,
        model: Members = None,
        prompt: PromptOption = None,
        prompt1: Prompt1 = None,
        prompt2: Prompt2 = None,
        teacher: Teachers = None,
        ask: Ask = None,
        preset: PresetName = None,
        dev: Dev = None,
        test: Test = None,
        data_dir: DataDir = None,
        inductive: Inductive = False,
        max_pairs: MaxPairs = None,
        seed: Seed = None,
        assignments: Assignments = None,
        columns: Columns = None,
        skip_bad: SkipBad = False,
        trust_remote_code: TrustRemoteCode = False,
        engine: EngineName = None,
        workers: Workers = None,
        ray_address: RayAddress = None,
        out: Out = None,
        json: Json = False,
    ) -> None:
        from trans_encoder.cli.jobs import prepare

        flags = {
            "inputs.pairs": pairs,
            "inputs.task": task,
            "inputs.text": text,
            "inputs.line": line,
            "inputs.column": column,
            "inputs.language": language,
            "inputs.mix": mix,
            "inputs.objective": objective,
            "inputs.remine": remine,
            "inputs.dev": dev,
            "inputs.test": test,
            "inputs.columns": columns,
            "inputs.skip_bad": skip_bad,
            "inputs.data_dir": str(data_dir) if data_dir else None,
            "inputs.inductive": inductive,
            "inputs.max_pairs": max_pairs,
            "inputs.out": out,
            "engine.name": engine,
            "engine.workers": workers,
            "engine.ray_address": ray_address,
            "members": model,
            "teachers": teacher,
            "ask": ask,
            "preset": preset,
            "seed": seed,
            "trust_remote_code": trust_remote_code,
        }
        with show_progress():
            prompts = {"prompt": prompt, "prompt1": prompt1, "prompt2": prompt2}
            job = prepare(config, flags=flags, assignments=assignments or [], prompts=prompts)
        command(job, json)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run
