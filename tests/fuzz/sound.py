"""Sound inputs of every kind, small and varied: what the malformed ones are made from."""

import io
import json
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_WORDS = ("the", "farmer", "sells", "a", "wooden", "boat", "ein", "Öl-Fass", "你好", "🙂", 'says "yes"', "x,y", "é")


@dataclass(frozen=True)
class Row:
    """A sound pair."""

    first: str
    second: str
    score: float


def rows(random: Random) -> list[Row]:
    """Make some sound pairs."""
    return [Row(text(random), text(random), round(random.uniform(-1, 5), 3)) for _ in range(random.randint(1, 6))]


def text(random: Random) -> str:
    """Make a sound text."""
    return " ".join(random.choices(_WORDS, k=random.randint(2, 8)))


def pairs_jsonl(random: Random) -> bytes:
    """Write pairs as JSON lines, some with values of the wrong type."""
    return b"".join(json.dumps(_item(random, row)).encode() + b"\n" for row in rows(random))


def _item(random: Random, row: Row) -> Any:
    item: Any = {"sentence1": row.first, "sentence2": row.second, "score": row.score}
    if random.random() < 0.4:
        wrong = random.choice((None, "", " ", 5, True, [], ["a"], {"a": "b"}, "\0", "nan", float("nan"), 1e308 * 10))
        name = random.choice(tuple(item))
        match random.randrange(4):
            case 0:
                del item[name]
            case 1:
                item = random.choice((wrong, [item], {"pairs": item}))
            case _:
                item[name] = wrong
    return item


def pairs_tsv(random: Random) -> bytes:
    """Write pairs as TSV."""
    lines = [f"{row.first}\t{row.second}\t{row.score}\n" for row in rows(random)]
    return "".join(["sentence1\tsentence2\tscore\n", *lines]).encode()


def pairs_csv(random: Random) -> bytes:
    """Write pairs as CSV, quoted where it must be and sometimes where it need not be."""

    def field(value: object) -> str:
        content = str(value).replace(" ", random.choice((" ", " ", " ", "\n")))
        needed = any(mark in content for mark in ',"\n')
        return '"' + content.replace('"', '""') + '"' if needed or random.random() < 0.3 else content

    lines = [",".join(map(field, (row.first, row.second, row.score))) for row in rows(random)]
    return "\n".join(["sentence1,sentence2,score", *lines, ""]).encode()


def plain_text(random: Random) -> bytes:
    """Write sentences, one a line."""
    return "".join(
        text(random) + random.choice((".\n", "\n", "! ", "\n\n")) for _ in range(random.randint(1, 12))
    ).encode()


def markdown(random: Random) -> bytes:
    """Write a little Markdown."""
    marks = ("# ", "- ", "> ", "1. ", "", "    ", "```\n", "|a|b|\n|-|-|\n|", "[x](y) ", "<b>", "***", "![")
    return "".join(random.choice(marks) + text(random) + "\n" * random.randint(1, 2) for _ in range(8)).encode()


def table(random: Random) -> pa.Table:
    """Make a table of pairs with nulls, odd types and odd values."""
    chosen = rows(random)
    odd = (None, "", " ", "\0", "a\tb", "\n")

    def spoilt(values: list[Any], spoilers: tuple[Any, ...]) -> list[Any]:
        return [random.choice(spoilers) if random.random() < 0.2 else value for value in values]

    first, second = spoilt([row.first for row in chosen], odd), spoilt([row.second for row in chosen], odd)
    scores = spoilt([row.score for row in chosen], (None, float("nan"), float("inf")))
    kinds = (pa.string(), pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()))
    columns = {
        "sentence1": pa.array(first, random.choice(kinds)),
        "sentence2": pa.array(second, random.choice(kinds)),
    }
    match random.randrange(6):
        case 0:
            columns["score"] = pa.array([str(score) for score in scores])
        case 1:
            columns["sentence2"] = pa.array(range(len(chosen)))
        case 2:
            del columns[random.choice(tuple(columns))]
        case _:
            columns["score"] = pa.array(scores, pa.float64())
    return pa.table(columns)


def arrow_bytes(random: Random, content: pa.Table, *, ending: str) -> bytes:
    """Write a table as Parquet, or as an Arrow file or stream."""
    buffer = io.BytesIO()
    if ending == "parquet":
        pq.write_table(content, buffer, compression=random.choice(("snappy", "zstd", "none", "gzip")))
    else:
        with random.choice((pa.ipc.new_file, pa.ipc.new_stream))(buffer, content.schema) as writer:
            writer.write_table(content)
    return buffer.getvalue()
