"""The words of a text in any language: what white space separates; a text of few words is taken letter by letter."""

FEWEST_WORDS = 4
"""Of fewer, edits of a text would leave too little to tell them apart."""


def words_of(text: str) -> list[str]:
    """Return the words of a text, or its letters if it has few words."""
    words = text.split()
    return words if len(words) >= FEWEST_WORDS else list(text.strip())


def joined(words: list[str], *, like: str) -> str:
    """Put words, or letters, of a text together as they were in it."""
    return (" " if len(like.split()) >= FEWEST_WORDS else "").join(words)
