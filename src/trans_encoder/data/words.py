"""What counts as a text, and as a word in any language; a text of few words is taken letter by letter."""

# Ranges of Thai, Lao, Myanmar, Khmer, kana and Han: scripts written without spaces.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"

WORD = rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+"
"""A run of letters and digits, or one character of a script without spaces, for Python's `re`."""
WORD_RE2 = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]|[\p{L}\p{M}\p{N}]+"
"""The same for RE2, the regular expressions of Arrow, whose \\W knows ASCII alone."""

FEWEST_WORDS = 4
"""Texts with fewer words are edited letter by letter: losing a word would leave too little of them."""


def is_encodable(text: str) -> bool:
    """Whether a text is whole Unicode: half a surrogate pair, as broken JSON has it, cannot be written."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def words_of(text: str) -> list[str]:
    """Return the words of a text, or its letters if it has few words."""
    words = text.split()
    return words if len(words) >= FEWEST_WORDS else list(text.strip())


def joined(words: list[str], *, like: str) -> str:
    """Join words, or letters, as they were joined in the text `like`."""
    return (" " if len(like.split()) >= FEWEST_WORDS else "").join(words)
