"""`trans-encoder learn`: one student from saved labels."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from trans_encoder.cli.options import (
    DevFile,
    Json,
    PlanSettings,
    Pooling,
    PromptOptions,
    TrustRemoteCode,
    read_settings,
)
from trans_encoder.cli.output import print_result
from trans_encoder.cli.reading import Reading
from trans_encoder.errors import ConfigurationError
from trans_encoder.progress import show_progress

_OPTIONS = ("model", "kind", "out", "preset", "dev", "seed", "trust_remote_code")


def learn(
    labels: Annotated[
        Path, typer.Argument(metavar="LABELS", help="Pairs with a score each: Parquet, JSONL, TSV, CSV, .gz too.")
    ],
    model: Annotated[str, typer.Option(metavar="STUDENT", help="What the student starts from.")],
    kind: Annotated[Literal["bi", "cross"], typer.Option(help="What the student becomes.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The model goes to FOLDER/bi or FOLDER/cross.")],
    score_range: Annotated[
        str | None,
        typer.Option("--range", metavar="LOW,HIGH", help="Scores are from LOW to HIGH, such as 0,5; mapped to 0,1."),
    ] = None,
    preset: Annotated[str, typer.Option(metavar="NAME", help="Settings as in train.")] = "small",
    dev: DevFile = None,
    pooling: Pooling = None,
    *,
    prompts: PromptOptions,
    seed: Annotated[int, typer.Option(min=0, help="Decides new weights, order and dropout.")] = 42,
    assignments: PlanSettings = None,
    reading: Reading,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Train one student on saved labels: those of `label`, or scores of an LLM, an API or people.

    Scores are cosines or probabilities, from -1 to 1; give `--range` for others. Killed at any point, the same command
    continues.

    Example: `trans-encoder learn labels.parquet --model google-bert/bert-base-uncased --kind cross --out runs/learnt`
    """
    from trans_encoder.config import MemberConfig
    from trans_encoder.pipelines.learn import learn as run

    overrides = read_settings(assignments, options=_OPTIONS)
    ((first, second),) = prompts.choose(1)
    member = MemberConfig(bi=model, pooling=pooling, prompt1=first, prompt2=second)
    with show_progress():
        pairs = reading.labels(labels, score_range=None if score_range is None else _bounds(score_range))
        test = None if dev is None else reading.test_set(dev)
        settings = {"seed": seed, "trust_remote_code": trust_remote_code, **overrides}
        encoder = run(pairs, member, kind=kind, out=out, preset=preset, dev=test, **settings)
    folder = out / encoder.kind
    shown = f"{folder}: {kind}-encoder, learnt from {len(pairs):,} labels"
    print_result({"out": str(folder), "kind": kind, "model": model, "labels": len(pairs)}, as_json=json, shown=shown)


def _bounds(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigurationError(f"--range {text}: expected two numbers, such as 0,5") from None
    return low, high
