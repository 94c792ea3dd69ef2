"""`trans-encoder audit`: look at some pairs, and know how precise all of them are."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trans_encoder.cli.options import Json
from trans_encoder.cli.output import print_result

if TYPE_CHECKING:
    from trans_encoder.answers.audit import Answer, Audit

_KEYS: dict[str, "Answer"] = {"s": "same", "n": "not the same", "u": "unsure"}


def audit(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `trans-encoder duplicates` made.")],
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Pairs to look at, when the audit begins.")] = 100,
    precision: Annotated[
        float, typer.Option("--precision", metavar="P", help="The share of right pairs that is to be promised.")
    ] = 0.9,
    confidence: Annotated[
        float, typer.Option("--confidence", metavar="C", help="How often such a promise must hold.")
    ] = 0.9,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which pairs are chosen, when the audit begins.")] = 0,
    status: Annotated[bool, typer.Option("--status", help="Ask nothing; say what the answers promise so far.")] = False,
    json: Json = False,
) -> None:
    """Answer for some pairs whether they mean the same; then a precision is promised with a stated confidence.

    Type s (same), n (not the same), u (unsure), z (undo) or q (quit), each with Enter. Answers are saved at once in
    FOLDER/audit.jsonl, the sure ones as a dev set in FOLDER/audit-dev.jsonl, and the pairs that keep the promise in
    FOLDER/promised.jsonl. `trans-encoder serve INDEX --duplicates FOLDER` asks the same on a page.

    Example: `trans-encoder audit duplicates --precision 0.95`
    """
    from trans_encoder.answers.audit import Audit
    from trans_encoder.answers.promises import keep_promise

    keep_promise([0], 1, precision=precision, confidence=confidence)  # refuse numbers before anyone has answered
    opened = Audit.open(folder, pairs=pairs, seed=seed)
    if not status:
        _ask(opened)
    promise = opened.promise(precision, confidence=confidence)
    kept = opened.save_promised(promise)
    counts = opened.counts
    result: dict[str, Any] = {
        "folder": str(folder), "pairs": len(opened.pairs), "answers": counts, "promise": promise.to_dict(), "kept": kept
    }  # fmt: skip
    said = ", ".join(f"{number} {name}" for name, number in counts.items())
    shown = [f"{sum(counts.values())} of {len(opened.pairs)} pairs answered: {said}"]
    if promise.bands:
        shown.append(
            f"At least {promise.bound:.1%} of the {kept:,} pairs in {folder / 'promised.jsonl'} are right "
            f"(confidence {confidence:.0%}, {promise.right} of {promise.checked} checked pairs were right)"
        )
    else:
        shown.append(f"The answers do not support a precision of {precision:.0%} yet (confidence {confidence:.0%})")
    print_result(result, as_json=json, shown=shown)


def _ask(opened: "Audit") -> None:
    """Ask about one pair after the other, on standard error, until all are answered or someone quits."""
    while (pair := opened.next) is not None:
        place = f"[{len(opened.answers) + 1}/{len(opened.pairs)}]"
        typer.echo(f"\n{place} {pair.id1}: {pair.text1}\n{' ' * len(place)} {pair.id2}: {pair.text2}", err=True)
        typer.echo("same? s yes, n no, u unsure, z undo, q quit: ", err=True, nl=False)
        try:
            key = input().strip().lower()
        except EOFError:
            return
        if key == "q":
            return
        if key == "z":
            undone = opened.undo()
            typer.echo("nothing to undo" if undone is None else f"undone: {undone.id1}, {undone.id2}", err=True)
        elif key in _KEYS:
            opened.answer(pair.number, _KEYS[key])
        else:
            typer.echo(f"{key!r} is not an answer; type s, n, u, z or q", err=True)
