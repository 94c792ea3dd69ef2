"""`trans-encoder evaluate`: Spearman or AUC of a model or an ensemble."""

from pathlib import Path
from typing import Annotated

import typer

from trans_encoder.cli.options import DataDir, Json, Loading, Models
from trans_encoder.cli.output import print_result, say_all_cuts, score_table
from trans_encoder.cli.reading import Reading
from trans_encoder.errors import ConfigurationError
from trans_encoder.progress import show_progress


def evaluate(
    models: Models,
    task: Annotated[str | None, typer.Option(help="sts, sts-b, sick-r, qqp, qnli or mrpc.")] = None,
    test: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Your own labelled pairs.")] = None,
    data_dir: DataDir = None,
    *,
    reading: Reading,
    loading: Loading,
    json: Json = False,
) -> None:
    """Evaluate a model, or the ensemble of several, on a task or on your own labelled files.

    Example: `trans-encoder evaluate runs/sts/best/bi --task sts --data-dir data`
    """
    from trans_encoder.data import Task, TestSet, load_task
    from trans_encoder.evaluation.evaluate import evaluate as run

    if (task is None) == (not test):
        raise ConfigurationError("give either --task NAME or --test FILE (repeatable)")
    if task is not None and (reading.columns or reading.skip_bad):
        raise ConfigurationError("--columns and --skip-bad are for files of your own (--test), not for --task")
    with show_progress():
        if task is not None:
            tests: Task | dict[str, TestSet] = load_task(task, data_dir=data_dir, tests_only=True)
        else:
            tests = {str(file): reading.test_set(file) for file in test or []}
        encoders = loading.load(models)
        result = run(encoders, tests)
    say_all_cuts(result.cuts)
    shown = {**result.scores, "average": result.average}
    title = f"{result.task}: {' + '.join(result.models)}"
    caption = "an ensemble: the mean of the models' scores" if len(models) > 1 else None
    print_result(result.to_dict(), as_json=json, shown=score_table({"score x100": shown}, title=title, caption=caption))
