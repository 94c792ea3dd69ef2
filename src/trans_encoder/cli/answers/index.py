"""`trans-encoder index` and `search`: embed the rows of a file once, then ask."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from trans_encoder.cli.options import (
    EngineName,
    Json,
    Prompt1,
    Prompt2,
    PromptOption,
    RayAddress,
    SkipBad,
    TrustRemoteCode,
    Workers,
    as_text,
    choose_prompts,
)
from trans_encoder.cli.output import print_result, say_cuts
from trans_encoder.progress import show_progress

if TYPE_CHECKING:
    from trans_encoder.encoders import Prompts
    from trans_encoder.runs import Engine

RowsPath = Annotated[
    Path,
    typer.Option("--text", metavar="FILE", help="Rows: JSONL, TSV, CSV, Parquet, or text with a row a line; .gz too."),
]
IdColumn = Annotated[
    str | None,
    typer.Option("--id", metavar="COLUMN", callback=as_text, help="The column of ids; else `id`, else line numbers."),
]
TextColumn = Annotated[
    str | None,
    typer.Option("--column", metavar="COLUMN", callback=as_text, help="The column of the text, if it is not found."),
]
EmbeddingModels = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="BI", help="A bi-encoder's folder or hub name; repeat for a team."),
]
CrossOption = Annotated[
    str | None, typer.Option("--cross", metavar="CROSS", help="A cross-encoder that looks at the best ones again.")
]

IndexPlace = Annotated[
    str, typer.Argument(metavar="INDEX", help="A folder or URL where `trans-encoder index` made an index.")
]


def index(
    text: RowsPath,
    out: Annotated[
        str, typer.Option("--out", metavar="INDEX", help="The folder of the index, or a URL such as s3://bucket/name.")
    ],
    model: EmbeddingModels = None,
    prompt: PromptOption = None,
    prompt1: Prompt1 = None,
    prompt2: Prompt2 = None,
    id_column: IdColumn = None,
    column: TextColumn = None,
    reindex: Annotated[
        bool, typer.Option("--reindex", help="Embed everything again if the model is another one.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Drop the rows that the file no longer has.")] = False,
    skip_bad: SkipBad = False,
    engine: EngineName = None,
    workers: Workers = None,
    ray_address: RayAddress = None,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Embed every distinct text of a file once and keep it with its ids and columns, to find duplicates and to search.

    Given again with more rows, only new texts are embedded; stopped at any point, the same command continues.
    The first text of a pair is what is searched for, the second a row: --prompt1 is for queries, --prompt2 for rows.
    Without a choice a model's own prompts `query` and `document` apply, if it has no default prompt.
    At a URL of an object storage (s3://, gs://, abfss://) the index is published as a whole when it is complete.

    Example: `trans-encoder index --text tickets.csv --id ticket --model models/all-MiniLM-L6-v2 --out tickets.index`
    """
    from trans_encoder.answers.index import build_index
    from trans_encoder.answers.objects import without_credentials
    from trans_encoder.cli.reading import read_corpus

    with show_progress():
        corpus = read_corpus(text, id_column=id_column, column=column, skip_bad=skip_bad)
        with _workers(engine, workers, ray_address) as side_by_side:
            prompts = prompts_of(out, model, (prompt, prompt1, prompt2))
            changing: dict[str, Any] = {"reindex": reindex, "replace": replace, "engine": side_by_side}
            changing["prompts"] = prompts
            made = build_index(corpus, out, models=model, trust_remote_code=trust_remote_code, **changing)
        probability = made.probability
    report = made.report
    assert report is not None
    for name, cuts in report.cuts.items():
        say_cuts(name, cuts)
    parts = [f"{number:,} {what}" for what, number in asdict(report).items() if number and what in _CHANGES]
    place = without_credentials(out)
    shown = [
        f"{place}: {report.rows:,} rows ({', '.join(parts)}), {report.texts:,} distinct texts, "
        f"{report.embedded:,} embedded now",
        f"Unrelated texts score about {probability.scale.unrelated:.2f}, the same text with a light edit about "
        f"{probability.scale.same:.2f}",
    ]
    result = {"out": place, "models": made.manifest.models, **asdict(report), "scale": asdict(probability.scale)}
    print_result(result, as_json=json, shown=shown)


def prompts_of(
    index: str | Path, models: Sequence[str] | None, options: tuple[Sequence[str] | None, ...]
) -> list["Prompts"] | None:
    """Return the prompts for each model, which are those of the index if none is named; None if none is given."""
    from trans_encoder.answers.index import is_index
    from trans_encoder.answers.published import located
    from trans_encoder.answers.store import Manifest

    if not any(options):
        return None
    if not models and is_index(index):
        models = Manifest.read(located(index)).models
    both, first, second = options
    return [*choose_prompts(len(models or ()), prompt=both, prompt1=first, prompt2=second)]


@contextmanager
def _workers(engine: str | None, workers: int | None, ray_address: str | None) -> Iterator["Engine | None"]:
    """Yield the engine that was asked for; None to embed in this process."""
    from trans_encoder.config import EngineConfig
    from trans_encoder.errors import ConfigurationError
    from trans_encoder.runs import make_engine

    if workers is not None and workers < 1:
        raise ConfigurationError(f"--workers must be at least 1, not {workers}")
    if engine == "ray" and workers is not None:
        raise ConfigurationError("--workers are processes of this machine; leave it out with --engine ray")
    if engine != "ray" and ray_address is not None:
        raise ConfigurationError("--ray-address is given, but not --engine ray")
    if engine == "ray":
        config = EngineConfig(name="ray", ray_address=ray_address)
    elif workers is not None and workers > 1:
        config = EngineConfig(workers=workers)
    else:
        yield None
        return
    with make_engine(config) as made:
        yield made


_CHANGES = ("added", "changed", "unchanged", "removed")


def search(
    index: IndexPlace,
    text: Annotated[str, typer.Argument(metavar="TEXT", callback=as_text, help="What to search for.")],
    top: Annotated[int, typer.Option("--top", min=1, help="How many rows to return.")] = 10,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="FILTER",
            callback=as_text,
            help='A condition on columns: status == "open" and year >= 2020',
        ),
    ] = None,
    cross: CrossOption = None,
    prompt: PromptOption = None,
    prompt1: Prompt1 = None,
    prompt2: Prompt2 = None,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Search an index by meaning and by words at once.

    The probability is an estimate of how likely people would say that a row means the same as the text.
    The text has the prompt of queries that the index was made with, or --prompt1; that of its rows stays as it is.

    Example: `trans-encoder search tickets.index "cannot log in" --top 5 --where 'status == "open"'`
    """
    from trans_encoder.answers.index import Index
    from trans_encoder.answers.published import located
    from trans_encoder.encoders import load_encoder

    with show_progress():
        folder = located(index)
        prompts = prompts_of(folder, None, (prompt, prompt1, prompt2))
        opened = Index.open(folder, prompts=prompts, trust_remote_code=trust_remote_code)
        second = load_encoder(cross, kind="cross", trust_remote_code=trust_remote_code) if cross else None
        hits = opened.search(text, top=top, where=where, cross=second)
    table = Table("id", "text", title_justify="left", caption_justify="left")
    table.add_column("score", justify="right")
    table.add_column("same", justify="right")
    for hit in hits:
        table.add_row(hit.id, hit.text, f"{hit.score:.2f}", f"{hit.probability:.0%}")
    shown = table if hits else "No row was found."
    print_result({"text": text, "hits": [hit.to_dict() for hit in hits]}, as_json=json, shown=shown)
