"""`trans-encoder duplicates`: which rows mean the same."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from trans_encoder.cli.answers.index import CrossOption, EmbeddingModels, IdColumn, TextColumn, prompts_of
from trans_encoder.cli.options import Json, Prompt1, Prompt2, PromptOption, SkipBad, TrustRemoteCode
from trans_encoder.cli.output import Shown, print_result, say_cuts
from trans_encoder.progress import show_progress

if TYPE_CHECKING:
    from trans_encoder.answers.found import Duplicates
    from trans_encoder.answers.index import Index
    from trans_encoder.encoders import Prompts

_SHOWN = 10


def duplicates(
    source: Annotated[str, typer.Argument(metavar="INDEX|FILE", help="An index, its URL, or a file of rows.")],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where pairs, groups and the page go.")],
    model: EmbeddingModels = None,
    prompt: PromptOption = None,
    prompt1: Prompt1 = None,
    prompt2: Prompt2 = None,
    cross: CrossOption = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="RUN", help="A finished run, whose models compare the texts.")
    ] = None,
    precision: Annotated[
        float | None, typer.Option("--precision", metavar="P", help="Accept pairs up to this expected precision.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", metavar="T", help="Accept pairs from this score on.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="INDEX|FILE", help="Compare with the rows of another file only.")
    ] = None,
    flips: Annotated[
        bool,
        typer.Option(
            "--flips/--no-flips",
            help="Whether texts that differ by a negation, number, name or exchanged words alone count as the same.",
        ),
    ] = False,
    id_column: IdColumn = None,
    column: TextColumn = None,
    skip_bad: SkipBad = False,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Find the rows that mean the same: pairs, groups with a representative each, and a page to look at.

    Without --precision or --threshold, pairs are accepted where the expected F1 is best. Probabilities are estimates.
    A file that is compared with an index is embedded with the models of that index.
    All rows are embedded with one prompt, that of second texts; what is searched for in FOLDER/index has that of first.
    A file's vectors are kept in FOLDER/index, so that the same command continues where it was stopped.

    Example: `trans-encoder duplicates tickets.index --precision 0.9 --out duplicates`
    """
    from trans_encoder.answers.duplicates import find_duplicates, models_of
    from trans_encoder.answers.found import check_target, title_of
    from trans_encoder.answers.index import Index, is_index
    from trans_encoder.distill.run import Result
    from trans_encoder.encoders import load_encoder
    from trans_encoder.errors import ConfigurationError
    from trans_encoder.report import write_duplicates

    asked = (prompt, prompt1, prompt2)
    if run is not None and (model or cross or any(asked)):
        raise ConfigurationError(
            "give either --run or --model and --cross, not both; a run's models keep their prompts"
        )
    check_target(out)
    with show_progress():
        names: list[str] | None = model
        crosses = [load_encoder(cross, kind="cross", trust_remote_code=trust_remote_code)] if cross else []
        if run is not None:
            names, crosses = models_of(Result.open(run))
        options: dict[str, Any] = {"id_column": id_column, "column": column, "skip_bad": skip_bad}
        other = None
        prompts: list[Prompts] | None
        if against is not None and not names and is_index(against) and not is_index(source):
            other = Index.open(against, prompts=prompts_of(against, None, asked), trust_remote_code=trust_remote_code)
            names, prompts = other.manifest.models, [*other.prompts]
        else:
            prompts = prompts_of(source, names, asked)
        opened = _opened(source, out / "index", names, prompts, options, trust_remote_code=trust_remote_code)
        if against is not None and other is None:
            names, prompts = opened.manifest.models, [*opened.prompts]
            other = _opened(against, out / "against", names, prompts, options, trust_remote_code=trust_remote_code)
        deciding: dict[str, Any] = {"precision": precision, "threshold": threshold, "flips": flips}
        found = find_duplicates(opened, cross=crosses, against=other, **deciding)
        found.save(out)
        page = write_duplicates(found, out / "duplicates.html", title=title_of(source))
    result = {"out": str(out), "page": str(page), "rows": found.rows, **found.summary}
    print_result(result, as_json=json, shown=_shown(found, out, page))


def _opened(
    source: str,
    kept: Path,
    models: list[str] | None,
    prompts: list["Prompts"] | None,
    options: dict[str, Any],
    *,
    trust_remote_code: bool,
) -> "Index":
    """Open an index, or make one of a file beside the answers."""
    from trans_encoder.answers.index import Index, build_index, is_index
    from trans_encoder.cli.reading import read_corpus
    from trans_encoder.errors import ConfigurationError

    if is_index(source):
        opened = Index.open(source, prompts=prompts, trust_remote_code=trust_remote_code)
        if models and models != opened.manifest.models:
            raise ConfigurationError(
                f"{source} is an index made with {' and '.join(opened.manifest.models)}; leave out --model, or index "
                "the file again with the other model"
            )
        return opened
    if not models:
        raise ConfigurationError(
            f"{source} is not an index, so a model is needed to embed it; give a bi-encoder's folder or hub name with "
            "--model, such as --model sentence-transformers/all-MiniLM-L6-v2, or a finished run with --run"
        )
    corpus = read_corpus(Path(source), **options)
    making: dict[str, Any] = {"models": models, "prompts": prompts or [None] * len(models)}
    made = build_index(corpus, kept, **making, reindex=True, replace=True, trust_remote_code=trust_remote_code)
    for name, cuts in made.report.cuts.items() if made.report else ():
        say_cuts(name, cuts)
    return made


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _shown(found: "Duplicates", out: Path, page: Path) -> Shown:
    table = Table("group", "rows", "representative", title_justify="left", caption_justify="left")
    for group in found.groups[:_SHOWN]:
        table.add_row(
            str(group.group), str(len(group.ids) + len(group.against)), f"{group.representative}: {group.text}"
        )
    expected = found.summary["expected_precision"]
    promise = "" if expected is None else f"; about {expected:.0%} of the pairs are expected to be right (an estimate)"
    lines: list[str | Table] = [
        f"{found.rows:,} rows: {_counted(len(found.pairs), 'pair')} in {_counted(len(found.groups), 'group')}{promise}"
    ]
    if found.groups:
        lines.append(table)
    elif found.summary["decision"]["precision"] is not None and len(found.candidates):
        likeliest = found.candidates["probability"][0].as_py()
        lines.append(
            f"No pair is that likely; the likeliest has {likeliest:.0%}. Ask for a lower --precision, or leave it out "
            "and check pairs yourself: trans-encoder audit"
        )
    if apart := found.summary["kept_apart"]:
        several = "1 pair that differs" if apart == 1 else f"{apart:,} pairs that differ"
        lines.append(f"Kept apart: {several} by a negation, number, name or exchanged words alone (shown on the page)")
    return [*lines, f"Pairs and groups: {out}", f"Page: {page}"]
