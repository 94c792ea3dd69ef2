"""Light edits: texts that certainly still mean the same, to see how a scorer rates the same meaning in one corpus."""

import re
from collections.abc import Callable, Sequence

import numpy as np

_PUNCTUATION = re.compile(r"[^\w\s]")
_LONG_WORD = 5

Edit = Callable[[str, np.random.Generator], str]


def lightly_edited(texts: Sequence[str], *, rng: np.random.Generator) -> list[str]:
    """Return each text with one or two small changes of the kind that people make when they type it again."""
    edited = []
    for text in texts:
        chosen = rng.choice(len(_EDITS), size=int(rng.integers(1, 3)), replace=False)
        changed = text
        for place in chosen:
            changed = _EDITS[place](changed, rng)
        edited.append(changed if changed.strip() else text)
    return edited


def _other_case(text: str, _rng: np.random.Generator) -> str:
    return text.lower() if text != text.lower() else text.upper()


def _no_punctuation(text: str, _rng: np.random.Generator) -> str:
    return _PUNCTUATION.sub("", text)


def _swapped_words(text: str, rng: np.random.Generator) -> str:
    words = text.split()
    if len(words) > 3:
        place = int(rng.integers(1, len(words) - 1))
        words[place - 1], words[place] = words[place], words[place - 1]
    return " ".join(words)


def _typo(text: str, rng: np.random.Generator) -> str:
    def swapped(word: str) -> str:
        letter = int(rng.integers(1, len(word) - 2))
        return word[:letter] + word[letter + 1] + word[letter] + word[letter + 2 :]

    return _in_a_long_word(text, swapped, rng)


def _dropped_letter(text: str, rng: np.random.Generator) -> str:
    def shortened(word: str) -> str:
        letter = int(rng.integers(1, len(word)))
        return word[:letter] + word[letter + 1 :]

    return _in_a_long_word(text, shortened, rng)


def _in_a_long_word(text: str, edit: Callable[[str], str], rng: np.random.Generator) -> str:
    """Edit one word drawn from the long ones, if there are any."""
    words = text.split()
    long = [place for place, word in enumerate(words) if len(word) >= _LONG_WORD]
    if long:
        place = int(rng.choice(long))
        words[place] = edit(words[place])
    return " ".join(words)


_EDITS: tuple[Edit, ...] = (_other_case, _no_punctuation, _swapped_words, _typo, _dropped_letter)
