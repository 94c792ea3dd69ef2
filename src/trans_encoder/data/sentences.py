"""From documents to sentences: paragraphs, Markdown, and the sentence splitter."""

import re
from collections.abc import Iterable, Iterator
from functools import cache

import sentencex  # type: ignore[import-untyped]
from markdown_it import MarkdownIt

from trans_encoder.data.sources import MAX_LINE_BYTES

_BLANK_LINES = re.compile(r"\n\s*\n")


def split_sentences(text: str, *, language: str) -> Iterator[str]:
    """Yield the sentences of a text, paragraph by paragraph, with single spaces between words."""
    for paragraph in _BLANK_LINES.split(text):
        for sentence in segment(tidy(paragraph), language=language):
            if cleaned := sentence.strip():
                yield cleaned


def segment(text: str, *, language: str) -> list[str]:
    """Cut a tidy text into sentences; a text that the splitter cannot handle stays whole."""
    try:
        return list(sentencex.segment(language, text))
    except BaseException as error:
        # A panic in the splitter's Rust code is not an Exception, and its class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        return [text]


def tidy(text: str) -> str:
    """Return a text on one line, with single spaces between words."""
    return " ".join(text.split())


def paragraphs(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Join lines with consecutive numbers (blank ones are left out before); yield (first number, paragraph)."""
    held: list[str] = []
    start, size = 0, 0
    for number, line in lines:
        if held and (number != start + len(held) or size + len(line) > MAX_LINE_BYTES):
            yield start, "\n".join(held)
            held, size = [], 0
        start = start if held else number
        held.append(line)
        size += len(line)
    if held:
        yield start, "\n".join(held)


def markdown_paragraphs(text: str) -> Iterator[str]:
    """Yield the prose of a Markdown text: headings, paragraphs, items and table cells, without code or markup."""
    for token in _markdown().parse(text):
        if token.type == "inline":
            parts = (" " if child.type.endswith("break") else child.content for child in token.children or ())
            if prose := tidy("".join(parts)):
                yield prose


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")
