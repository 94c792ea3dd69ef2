"""`trans-encoder bootstrap`: stage 0, from a PLM and raw text to a first bi-encoder."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from trans_encoder.cli.options import DevFile, Json, PlanSettings, TrustRemoteCode, read_settings
from trans_encoder.cli.output import print_result
from trans_encoder.cli.reading import Reading, TextPath, TextReading
from trans_encoder.config import PoolingMode
from trans_encoder.progress import show_progress

_OPTIONS = ("text", "model", "out", "objective", "teacher", "preset", "dev", "pooling", "seed", "trust_remote_code")


def bootstrap(
    text: TextPath,
    model: Annotated[str, typer.Option(metavar="PLM", help="A folder or hub name of any encoder.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The model goes to FOLDER/bi.")],
    objective: Annotated[
        Literal["simcse", "mirror", "neighbours", "similarities"] | None,
        typer.Option(
            help="What is alike: views by dropout (simcse, the default), masked views, adjacent sentences, or "
            "what the teachers score high (similarities, the default with teachers)."
        ),
    ] = None,
    teacher: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="A bi-encoder whose similarities are learnt; repeatable.")
    ] = None,
    preset: Annotated[
        Literal["small", "paper"], typer.Option(help="For small encoders on a CPU, or as published.")
    ] = "small",
    dev: DevFile = None,
    pooling: Annotated[PoolingMode | None, typer.Option(help="mean, unless the model says otherwise.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides the order of the text and dropout.")] = 42,
    assignments: PlanSettings = None,
    *,
    layout: TextReading,
    reading: Reading,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Tune a language model into a first bi-encoder, from raw text alone or with bi-encoders as teachers.

    A checkpoint that already embeds sentences does not need this, unless a small model shall learn from larger ones:
    then give these as teachers. Killed at any point, the same command continues.

    Example: `trans-encoder bootstrap --text corpus.txt --model bert-base-uncased --out start`
    """
    from trans_encoder.distill.bootstrap import bootstrap as run
    from trans_encoder.runs import TuningRecord, read_record, training_record

    overrides = read_settings(assignments, options=_OPTIONS)
    objective = objective or ("similarities" if teacher else "simcse")
    with show_progress():
        test = reading.test_set(dev) if dev else None
        encoder = run(
            layout.read(text, skip_bad=reading.skip_bad),
            model,
            out=out,
            objective=objective,
            teachers=teacher or (),
            preset=preset,
            seed=seed,
            dev=test,
            pooling=pooling,
            trust_remote_code=trust_remote_code,
            **overrides,
        )
    record = read_record(TuningRecord, training_record(Path(encoder.name)))
    result = {"out": encoder.name, **record.model_dump(include={"start_score", "best_score", "best_step"})}
    scores = f"; dev {record.start_score:.2f} before, {record.best_score:.2f} after" if test else ""
    print_result(result, as_json=json, shown=f"{out / Path(encoder.name).name}: tuned by {objective}{scores}")
