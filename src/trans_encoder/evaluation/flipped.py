"""Whether a flip is all that separates two texts: same words, but a negation, a number or two words exchanged.

Models score such pairs as if they meant the same, although they do not (see `probe`). The rule is strict on purpose:
one other content word, and the texts are left to the models. Words are English; in other languages only numbers and
exchanged words are seen.
"""

import re
from collections.abc import Sequence
from typing import Literal

from trans_encoder.evaluation.flips import NEGATION

Difference = Literal["negation", "numbers", "roles"]

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d]+|[,&/]")
_THOUSANDS = re.compile(r",(?=\d{3}\b)")
_CONTRACTED = re.compile(r"\b(ca|wo|sha)n['\u2019]t\b|\bcannot\b|n['\u2019]t\b", re.IGNORECASE)
_IGNORED = {
    "determiners": "a an the my your his her its our their this that these those please",
    "auxiliaries": "am is are was were be been being do does did has have had can could will would shall should may "
    "might must",
    "fillers": "just really now yet still ever any all at anymore more so to",
}
_DETERMINERS, _AUXILIARIES, _FILLERS = (frozenset(words.split()) for words in _IGNORED.values())
"""Fillers come and go with a negation: "it still works", "it does not work any more"."""
_LISTED = frozenset(("and", "or", "nor", "with", "versus", "vs", ",", "&", "/"))
"""What stands between two words of equal rank: "milk and bread" may be said the other way round."""
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_DIGITS = {word: str(number) for number, word in enumerate(_NUMBERS)}


def flip_between(first: str, second: str) -> Difference | None:
    """Return the flip that alone makes two texts differ, or None if more or nothing of weight does."""
    words = wording(first)
    if not words or words != wording(second):
        return None
    if _negates(first) != _negates(second):
        return None if _is_yes_or_no(first) or _is_yes_or_no(second) else "negation"
    one, other = _tokens(first), _tokens(second)
    numbers, others = _numbers(one), _numbers(other)
    if sorted(numbers) != sorted(others):
        return "numbers" if len(numbers) == len(others) else None
    return "roles" if _are_exchanged(one, other) else None


def wording(text: str) -> tuple[str, ...]:
    """Return the content words of a text in alphabetical order, without negations and numbers.

    Only texts of the same wording can differ by a flip alone, so this tells quickly where to look.
    """
    ignored = _DETERMINERS | _AUXILIARIES | _FILLERS
    words = _tokens(NEGATION.sub(" ", _CONTRACTED.sub(" not ", text)))
    return tuple(sorted(_stem(word) for word in words if word[0].isalpha() and word not in ignored))


def _tokens(text: str) -> list[str]:
    """Return words in lower case, numbers as digits and signs of lists, without determiners."""
    found = _TOKEN.findall(_THOUSANDS.sub("", text.lower()))
    return [_DIGITS.get(token, token) for token in found if token not in _DETERMINERS]


def _stem(word: str) -> str:
    """Drop the ending that a verb loses beside "did not": "it worked", "it did not work"."""
    if len(word) <= 3 or word.endswith("ss"):
        return word
    return word.removesuffix("ed").removesuffix("s").rstrip("e")


def _negates(text: str) -> bool:
    return len(NEGATION.findall(text)) % 2 == 1


def _is_yes_or_no(text: str) -> bool:
    """Return whether a text asks yes or no: "isn't it broken?" asks what "is it broken?" does."""
    first = re.split(r"[^a-z]", text.strip().lower(), maxsplit=1)[0]
    return text.rstrip().endswith("?") and (first in _AUXILIARIES or first.removesuffix("n") in _AUXILIARIES)


def _numbers(tokens: Sequence[str]) -> list[str]:
    return [token for token in tokens if token[0].isdigit()]


def _are_exchanged(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether two words have changed places, others between them, and are not merely listed."""
    if len(first) != len(second):
        return False
    changed = [place for place, (one, other) in enumerate(zip(first, second, strict=True)) if one != other]
    if len(changed) != 2 or changed[1] - changed[0] < 2:
        return False
    start, stop = changed
    mirrored = first[start] == second[stop] and first[stop] == second[start]
    return mirrored and not _LISTED.intersection(first[start + 1 : stop])
