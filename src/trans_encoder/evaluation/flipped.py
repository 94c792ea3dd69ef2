"""Whether a flip is all that separates two texts: same words, but a negation, a number, a name, or two exchanged.

Models score such pairs as if they meant the same, although they do not (see `probe`). The rule is strict on purpose:
one other content word, and the texts are left to the models. Words are English; in other languages only numbers and
exchanged words are seen.
"""

import re
from collections.abc import Sequence
from typing import Literal

from trans_encoder.evaluation.flips import NEGATION

Difference = Literal["negation", "numbers", "names", "roles"]

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d]+|[,&/]")
_WORD, _STOPS = re.compile(r"[^\W_]+"), re.compile(r"[.!?:\n\"\u201c]")
_LONGEST_NAME, _LONGEST_ABBREVIATION = 3, 4
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
        return "names" if _have_other_names(first, second) else None
    if _negates(first) != _negates(second):
        return None if _is_yes_or_no(first) or _is_yes_or_no(second) else "negation"
    one, other = _tokens(first), _tokens(second)
    numbers, others = _numbers(one), _numbers(other)
    if sorted(numbers) != sorted(others):
        return "numbers" if len(numbers) == len(others) else None
    return "roles" if _are_exchanged(one, other) else None


def wording(text: str) -> tuple[str, ...]:
    """Return the content words of a text in alphabetical order, without negations and numbers.

    Only texts of the same wording can differ by a flip alone, but for names: see `frame`.
    """
    ignored = _DETERMINERS | _AUXILIARIES | _FILLERS
    words = _tokens(NEGATION.sub(" ", _CONTRACTED.sub(" not ", text)))
    return tuple(sorted(_stem(word) for word in words if word[0].isalpha() and word not in ignored))


def frame(text: str) -> tuple[str, ...]:
    """Return the words of a text without its names; only texts of the same frame can differ by a name alone."""
    return tuple(word.lower() for word, named in _named(text) if not named)


def _have_other_names(first: str, second: str) -> bool:
    """Return whether a name in the place of another, up to three words each, is all that separates two texts."""
    one, other = _named(first), _named(second)
    start = 0
    while start < min(len(one), len(other)) and one[start][0].lower() == other[start][0].lower():
        start += 1
    end = 0
    while end < min(len(one), len(other)) - start and one[-1 - end][0].lower() == other[-1 - end][0].lower():
        end += 1
    runs = one[start : len(one) - end], other[start : len(other) - end]
    if not all(0 < len(run) <= _LONGEST_NAME and all(named for _, named in run) for run in runs):
        return False
    names = [[word for word, _ in run] for run in runs]
    return not any(_are_variants(name, another) for name in names[0] for another in names[1]) and not _abbreviates(
        *map("".join, names)
    )


def _named(text: str) -> list[tuple[str, bool]]:
    """Return the words of a text and whether each is a name: a capital within a sentence of mostly small letters."""
    found = list(_WORD.finditer(text))
    capital = [match[0][0].isupper() for match in found]
    begins = [
        place == 0 or bool(_STOPS.search(text[found[place - 1].end() : match.start()]))
        for place, match in enumerate(found)
    ]
    within = [big for big, first in zip(capital, begins, strict=True) if not first]
    headline = 2 * sum(within) > len(within)
    return [
        (match[0], big and not first and not headline and match[0].lower() != "i")
        for match, big, first in zip(found, capital, begins, strict=True)
    ]


def _are_variants(one: str, other: str) -> bool:
    """Return whether two words may be spellings or forms of one name: Russia and Russian, WW2 and WWII."""
    short, long = sorted((one.casefold(), other.casefold()), key=len)
    common = next((place for place, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return common >= 4 or 2 * common >= len(long)


def _abbreviates(one: str, other: str) -> bool:
    """Return whether only one of two names looks like an abbreviation: UK and Britain, MS and Microsoft."""
    return (one.isupper() and len(one) <= _LONGEST_ABBREVIATION) != (
        other.isupper() and len(other) <= _LONGEST_ABBREVIATION
    )


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
