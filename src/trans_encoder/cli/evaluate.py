"""`trans-encoder evaluate`: Spearman or AUC of a model or an ensemble."""

from pathlib import Path
from typing import Annotated

import typer

from trans_encoder.cli.options import (
    Columns,
    DataDir,
    Json,
    KindOption,
    Loading,
    MaxTokens,
    Models,
    Pooling,
    Prompt1,
    Prompt2,
    PromptOption,
    SkipBad,
    TrustRemoteCode,
)
from trans_encoder.cli.output import print_result, say_cuts, score_table
from trans_encoder.errors import ConfigurationError
from trans_encoder.progress import show_progress


def evaluate(
    models: Models,
    task: Annotated[str | None, typer.Option("--task", help="sts, sts-b, sick-r, qqp, qnli or mrpc.")] = None,
    test: Annotated[list[Path] | None, typer.Option("--test", metavar="FILE", help="Your own labelled pairs.")] = None,
    data_dir: DataDir = None,
    columns: Columns = None,
    skip_bad: SkipBad = False,
    kind: KindOption = None,
    pooling: Pooling = None,
    prompt: PromptOption = None,
    prompt1: Prompt1 = None,
    prompt2: Prompt2 = None,
    max_tokens: MaxTokens = None,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Evaluate a model, or the ensemble of several, on a task or on your own labelled files.

    Example: `trans-encoder evaluate runs/sts/best/bi --task sts --data-dir data`
    """
    from trans_encoder.cli.reading import Reading
    from trans_encoder.data.tasks import Task, TestSet, load_task
    from trans_encoder.evaluation.evaluate import evaluate as run

    if (task is None) == (not test):
        raise ConfigurationError("give either --task NAME or --test FILE (repeatable)")
    with show_progress():
        if task is not None:
            tests: Task | dict[str, TestSet] = load_task(task, data_dir=data_dir, tests_only=True)
        else:
            tests = {str(file): Reading(columns, skip_bad).test_set(file) for file in test or []}
        encoders = Loading(kind, pooling, max_tokens, prompt, prompt1, prompt2, trust_remote_code).load(models)
        result = run(encoders, tests)
    for model, cuts in result.cuts.items():
        say_cuts(model, cuts)
    shown = {**result.scores, "average": result.average}
    title = f"{result.task}: {' + '.join(result.models)}"
    caption = "an ensemble: the mean of the models' scores" if len(models) > 1 else None
    print_result(result.to_dict(), as_json=json, shown=score_table({"score x100": shown}, title=title, caption=caption))
