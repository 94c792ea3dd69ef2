"""`trans-encoder score` and `label`: models' scores of pairs, as a result or as labels for a student."""

from pathlib import Path
from typing import Annotated

import typer

from trans_encoder.cli.options import Json, Loading, Model, Models, Pairs
from trans_encoder.cli.output import print_result, say_all_cuts
from trans_encoder.cli.reading import Reading
from trans_encoder.errors import ConfigurationError
from trans_encoder.progress import show_progress


def score(
    model: Model,
    pairs: Pairs,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write pairs and scores: .jsonl, .csv or .parquet.")
    ] = None,
    probability: Annotated[
        bool,
        typer.Option("--probability", help="Give an estimate of how likely each pair means the same, not the score."),
    ] = False,
    *,
    reading: Reading,
    loading: Loading,
    json: Json = False,
) -> None:
    """Score pairs: one score a line on standard output, or pairs with their scores in a file.

    The file keeps ids and all other columns; in it the two texts are called sentence1 and sentence2.
    A bi-encoder's score is a cosine, a cross-encoder's lies between 0 and 1; neither says how likely two texts mean the
    same. `--probability` estimates that, with the texts of the pairs themselves as the corpus to measure against.

    Example: `trans-encoder score runs/sts/best/cross --pairs pairs.jsonl --out scored.jsonl`
    """
    from trans_encoder.answers.deciding import pair_probabilities
    from trans_encoder.data import write_pairs, writer_of
    from trans_encoder.encoders import count_cuts
    from trans_encoder.evaluation.ensembles import Ensemble

    if out is not None:
        writer_of(out)
    with show_progress():
        read = reading.pairs(pairs, others=out is not None)
        (encoder,) = loading.load([model])
        if not probability:
            scores = encoder.score(read)
        elif isinstance(encoder, Ensemble):
            raise ConfigurationError(f"{model} is an ensemble; --probability is for a single model")
        else:
            scores = pair_probabilities(read, encoder)[1].astype("float32")
        cuts = {} if isinstance(encoder, Ensemble) else {model: count_cuts(encoder, read)}
        if out is not None:
            write_pairs(read.with_scores(scores), out)
    say_all_cuts(cuts)
    about = {"model": model, "kind": encoder.kind, "count": len(read), "of": "probability" if probability else "score"}
    result = {**about, "mean": float(scores.mean()), "cuts": cuts}
    if out is not None:
        shown = f"{out}: {len(read)} pairs, mean score {result['mean']:.4f}"
        print_result({**result, "out": str(out)}, as_json=json, shown=shown)
    else:
        lines = "\n".join(f"{value:.6f}" for value in scores)
        print_result({**result, "scores": scores.tolist()}, as_json=json, shown=lines)


def label(
    models: Models,
    pairs: Pairs,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The Parquet file to write.")],
    *,
    reading: Reading,
    loading: Loading,
    json: Json = False,
) -> None:
    """Write pseudo-labels: texts, each teacher's score, their mean, and where they came from.

    Example: `trans-encoder label teacher-a teacher-b --pairs pairs.jsonl --out labels.parquet`
    """
    from trans_encoder.distill.labels import label as run
    from trans_encoder.encoders import count_cuts
    from trans_encoder.evaluation.ensembles import Ensemble

    if out.suffix != ".parquet":
        raise ConfigurationError(f"cannot write labels to {out}; give a name that ends in .parquet")
    with show_progress():
        read = reading.pairs(pairs)
        teachers = loading.load(models)
        labels = run(read, teachers)
        labels.save(out)
        encoders = [teacher for teacher in teachers if not isinstance(teacher, Ensemble)]
        cuts = {encoder.name: count_cuts(encoder, read) for encoder in encoders}
    say_all_cuts(cuts)
    result = {
        "teachers": models,
        "count": len(read),
        "mean": float(labels.scores.mean()),
        "cuts": cuts,
        "out": str(out),
    }
    print_result(result, as_json=json, shown=f"{out}: {len(read)} pairs, mean label {result['mean']:.4f}")
