"""The demo's text: the Python reference that ships inside every CPython, as plain prose."""

import re
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

# Of the markup, only the words inside are kept: "code" and *emphasis* or **strong**.
_MARKUP = re.compile(r'"([^"]+)"|\*{1,2}([^\s*"][^*"]*)\*{1,2}')
_BULLET = re.compile(r"^(?:\*|\d+\.|\[\d+\])\s+")
_NO_PROSE = ("::=", ">>>", "+--", "|==", "***", "===", "---")
_SENTENCE_END = (".", "!", "?", ":", ".)", "\N{RIGHT SINGLE QUOTATION MARK}")
_LEAST_WORDS = 5


def write_reference(folder: Path) -> Path:
    """Write each topic as a text file, blank lines between its paragraphs, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for topic, text in topics.items():
        (folder / f"{topic}.txt").write_text("\n\n".join(paragraphs(text)) + "\n", encoding="utf-8")
    return folder


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of prose in a topic, without grammar, tables, code and markup."""
    for block in re.split(r"\n\s*\n", text):
        words = _BULLET.sub("", " ".join(block.split()))
        if not any(sign in block for sign in _NO_PROSE) and _reads_as_prose(words):
            yield _MARKUP.sub(lambda found: found[1] or found[2], words)


def _reads_as_prose(words: str) -> bool:
    plain = [word for word in words.split() if word.strip('".,:;()*').isalpha()]
    return len(plain) >= _LEAST_WORDS and words.endswith(_SENTENCE_END)
