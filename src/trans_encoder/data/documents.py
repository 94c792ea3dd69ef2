"""Files and folders of raw text as one stream of sentences, each with the number of its document.

What a line is, or a row of a table, is found or given: a "sentence", a "document" to be split into sentences, or, in
plain text, "wrapped": the file is one document, with blank lines between its paragraphs. Where it is not given, a plain
text file has sentences, the text files of a folder are wrapped, and the rows of tables are documents. Markdown is
always wrapped. Among lines that are sentences, a blank line starts a new document.
"""

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Literal

from trans_encoder.data.columns import ColumnError, positions, text_column
from trans_encoder.data.readers import FORMATS
from trans_encoder.data.records import BROKEN_UTF8, arrow_batches, decoded, line_records
from trans_encoder.data.report import Tally
from trans_encoder.data.screening import as_texts
from trans_encoder.data.sentences import markdown_paragraphs, paragraphs, split_sentences, tidy
from trans_encoder.data.sources import MAX_LINE_BYTES, expand, file_format, numbered_lines, open_bytes
from trans_encoder.data.words import is_encodable
from trans_encoder.errors import DataError

LineMeaning = Literal["sentence", "document", "wrapped"]
TEXT_FORMATS = {".txt": "text", ".md": "markdown"} | FORMATS

_MAX_MARKDOWN_BYTES = 16 * MAX_LINE_BYTES

Passage = tuple[int, str]
"""The line where a text starts, and the text."""


def read_sentences(
    path: str | Path, *, tally: Tally, line: LineMeaning | None = None, column: str | None = None, language: str = "en"
) -> Iterator[tuple[int, str]]:
    """Yield (document, sentence) for all sentences of a file, a folder or a glob; bad lines go to the tally."""
    documents = count()
    for file in text_files(path):
        tally.start_file(str(file))
        kind = file_format(file, known=TEXT_FORMATS)
        meaning = _usual_meaning(kind, in_folder=Path(path).is_dir()) if line is None else line
        if kind == "markdown":
            yield from _split_file(_markdown(file, tally), next(documents), language=language)
        elif kind == "text":
            with open_bytes(file) as stream:
                lines = _sound(decoded(numbered_lines(stream), tally), tally)
                if meaning == "wrapped":
                    yield from _split_file(paragraphs(lines), next(documents), language=language)
                elif meaning == "document":
                    yield from _split_each(lines, documents, language=language)
                else:
                    yield from _runs(lines, documents)
        else:
            rows = _sound(_rows(file, kind=kind, column=column, tally=tally), tally)
            if meaning == "sentence":
                yield from ((next(documents), tidy(text)) for _, text in rows)
            else:
                yield from _split_each(rows, documents, language=language)


def text_files(path: str | Path) -> list[Path]:
    """Return the files that a path means; a folder must hold either text files or tables."""
    files = expand(path, endings=tuple(ending + packed for ending in TEXT_FORMATS for packed in ("", ".gz")))
    kinds = {file_format(file, known=TEXT_FORMATS) in ("text", "markdown") for file in files}
    if len(kinds) > 1:
        raise DataError(f"{path} holds both text files and tables; give one kind as a glob, such as {path}/*.parquet")
    return files


def _usual_meaning(kind: str, *, in_folder: bool) -> LineMeaning:
    if kind != "text":
        return "document"
    return "wrapped" if in_folder else "sentence"


def _sound(passages: Iterable[tuple[int, Any]], tally: Tally) -> Iterator[Passage]:
    """Yield and count the passages that are usable text; reject the others."""
    for line, text in passages:
        if not isinstance(text, str):
            tally.reject([line], "the text is missing" if text is None else f"a {type(text).__name__}, not text")
        elif not text.strip():
            tally.reject([line], "the text is empty")
        elif "\0" in text:
            tally.reject([line], "the text holds a NUL character")
        elif not is_encodable(text):
            tally.reject([line], "the text holds half a surrogate pair")
        else:
            tally.read += 1
            yield line, text


def _rows(file: Path, *, kind: str, column: str | None, tally: Tally) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) from the text column of a table."""
    select = text_column(column)
    try:
        if kind not in ("parquet", "arrow"):
            headerless = positions(None if column is None else [column])
            records = line_records(file, kind=kind, select=select, headerless=headerless, tally=tally)
            yield from ((line, values[0]) for line, values in records)
            return
        lines = count(1)
        for batch in arrow_batches(file, kind=kind, select=select):
            name = str(select(batch.schema.names)[0])
            texts, broken = as_texts(batch[name], name=name)
            for text, is_broken in zip(texts.to_pylist(), broken.tolist(), strict=True):
                line = next(lines)
                if is_broken:
                    tally.reject([line], BROKEN_UTF8)
                else:
                    yield line, text
    except ColumnError as error:
        raise DataError(f"{file}: {error}") from None


def _markdown(file: Path, tally: Tally) -> Iterator[Passage]:
    """Yield the prose of a Markdown file, which is read whole."""
    with open_bytes(file) as stream:
        content = stream.read(_MAX_MARKDOWN_BYTES + 1)
    if len(content) > _MAX_MARKDOWN_BYTES:
        tally.reject([1], f"a Markdown file of more than {_MAX_MARKDOWN_BYTES:,} bytes; make it plain text")
        return
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        tally.reject([1], BROKEN_UTF8)
        return
    if text.strip():
        yield from _sound(((1, prose) for prose in markdown_paragraphs(text)), tally)


def _split_file(passages: Iterable[Passage], document: int, *, language: str) -> Iterator[tuple[int, str]]:
    for _, text in passages:
        yield from ((document, sentence) for sentence in split_sentences(text, language=language))


def _split_each(passages: Iterable[Passage], documents: Iterator[int], *, language: str) -> Iterator[tuple[int, str]]:
    for passage in passages:
        yield from _split_file([passage], next(documents), language=language)


def _runs(lines: Iterable[Passage], documents: Iterator[int]) -> Iterator[tuple[int, str]]:
    """Give lines that are sentences their document; whatever interrupts the lines starts a new one."""
    last, document = -1, -1
    for line, text in lines:
        if line != last + 1:
            document = next(documents)
        last = line
        yield document, tidy(text)
