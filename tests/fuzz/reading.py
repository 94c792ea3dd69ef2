"""What every target shares: sound tables with their counts, and what is surprising about an error."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from fuzz.counting import count_csv, count_nonblank, count_tsv
from fuzz.sound import pairs_csv, pairs_jsonl, pairs_tsv
from trans_encoder.errors import TransEncoderError

Surprise = str | None
Target = Callable[[Random, Path], Surprise]

TABLES: dict[str, tuple[Callable[[Random], bytes], Callable[[bytes], int]]] = {
    "jsonl": (pairs_jsonl, count_nonblank),
    "tsv": (pairs_tsv, lambda content: count_tsv(content) - 1),
    "csv": (pairs_csv, lambda content: count_csv(content) - 1),
}
"""Formats of lines: how a sound file is made, and how many rows a file has."""


def quietly(work: Callable[[], object], *, name: Path | None = None) -> Surprise:
    """Do it, or have it refused with an error of ours that names the file."""
    try:
        work()
    except TransEncoderError as error:
        return None if name is None else unexplained(error, name)
    return None


def unexplained(error: TransEncoderError, path: Path) -> Surprise:
    """Say what is wrong with an error's message."""
    message = str(error)
    if str(path) not in message:
        return f"the message does not name the file: {message}"
    return f"a message of {len(message):,} characters" if len(message) > 20_000 else None
