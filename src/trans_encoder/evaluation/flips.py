"""Flips: texts whose meaning one small change alters, each with a paraphrase that keeps it.

The rules are for English. A rule that finds nothing to change in a text makes no case of it, so that every case is a
real change of meaning; how many each rule made is told with the figures.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from random import Random
from typing import Literal, get_args

Kind = Literal["negation", "roles", "numbers", "names", "units"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_AUXILIARIES = "is are was were can could will would should must has had does did"
NEGATION = re.compile(
    r"\b(?:not|no(?!\.?\s*\d)|never|none|nobody|nothing|nowhere|neither|nor|without|cannot)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
"""An English negation; the "no" of "question no. 6" is none."""
_PLAIN_NEGATION = re.compile(rf"\b({_AUXILIARIES.replace(' ', '|')}|do|have) not\b", re.IGNORECASE)
_CONTRACTED = re.compile(r"\b(is|are|was|were|could|would|should|has|had|does|did|do|have)n['\u2019]t\b", re.IGNORECASE)
_CANNOT = re.compile(r"\b(?:cannot|can['\u2019]t)\b", re.IGNORECASE)
_AUXILIARY = re.compile(rf"\b({_AUXILIARIES.replace(' ', '|')})\b(?! not\b)", re.IGNORECASE)
_QUESTION = re.compile(r"\?\s*$")
_FROM_TO = re.compile(r"\bfrom ((?:the |a |an )?[\w-]+) (to|into) ((?:the |a |an )?[\w-]+)\b")
_COMPARED = re.compile(r"\b([A-Z][\w-]+) (?:is|are|was|were) [\w-]+(?: [\w-]+)? than ([A-Z][\w-]+)\b")
_NAME = re.compile(r"(?<![.!?:\"“(] )(?<!^)\b[A-Z][a-z]{2,}\b")
_ANY_NAME = re.compile(r"\b[A-Z][a-z]{2,}\b")
_TOGETHER = re.compile(r"\b(?:and|or|with|nor)\b|[,&/]")
_NUMBER = re.compile(r"(?<![\w.,-])\d+(?:[.,]\d+)*(?![\w-])")
_NUMBER_WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve", "twenty", "fifty")
_NUMBER_WORD = re.compile(rf"\b({'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)
_FIRST_WORDS = (
    "The This That These Those When Where What Which Who How Why And But For Not You Your Our His Her They There Then "
    "While After Before"
)
_SHORT_FIRST_WORDS = "A An It We He She In On At To If As By My Is Can All"
_NOT_NAMES = frozenset(_FIRST_WORDS.split())
_OPENINGS = _NOT_NAMES | frozenset(_SHORT_FIRST_WORDS.split())
_DATES = (
    ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    ("January", "February", "April", "June", "July", "August", "September", "October", "November", "December"),
)
_NAMES = ("Berlin", "Madrid", "Oslo", "Lisbon", "Anna", "Peter", "Maria", "Thomas")
_UNITS: Mapping[str, str] = {
    "km": "miles", "miles": "km", "kilometres": "miles", "kilometers": "miles", "metres": "feet", "meters": "feet",
    "feet": "metres", "cm": "mm", "mm": "cm", "kg": "g", "g": "kg", "grams": "kilograms", "kilograms": "grams",
    "pounds": "kilograms", "litres": "millilitres", "liters": "gallons", "ml": "l", "seconds": "minutes",
    "minutes": "hours", "hours": "minutes", "days": "weeks", "weeks": "days", "months": "years", "years": "months",
    "dollars": "euros", "euros": "dollars", "USD": "EUR", "EUR": "USD", "KB": "MB", "MB": "GB", "GB": "MB", "TB": "GB",
    "degrees": "percent", "percent": "degrees", "ms": "s", "MHz": "GHz", "GHz": "MHz", "kW": "W",
}  # fmt: skip
_QUANTITY = rf"(?:\d|\b(?:{'|'.join(_NUMBER_WORDS)}|several|few|many))"
_UNIT = re.compile(rf"({_QUANTITY}\s?)({'|'.join(sorted(_UNITS, key=len, reverse=True))})\b")
_CURRENCY = re.compile(r"([$€£])(?=\s?\d)")

# Only words that rarely have another meaning: "show", "right" or "get" would often change more than the wording.
_SAME: Mapping[str, str] = {
    "do not": "don't", "does not": "doesn't", "did not": "didn't", "is not": "isn't", "are not": "aren't",
    "cannot": "can't", "can't": "cannot", "don't": "do not", "doesn't": "does not", "didn't": "did not",
    "begin": "start", "begins": "starts", "began": "started", "starts": "begins", "started": "began",
    "buy": "purchase", "bought": "purchased", "needs": "requires", "big": "large", "large": "big",
    "quickly": "fast", "because": "since", "often": "frequently", "error": "fault", "fixed": "repaired",
    "wrong": "incorrect", "every": "each", "whole": "entire", "delete": "remove", "deleted": "removed",
    "remove": "delete", "choose": "pick", "car": "automobile", "children": "kids", "photo": "picture",
    "movie": "film", "film": "movie", "maybe": "perhaps", "perhaps": "maybe", "nearly": "almost", "almost": "nearly",
}  # fmt: skip
_SYNONYM = re.compile(rf"\b({'|'.join(sorted(map(re.escape, _SAME), key=len, reverse=True))})\b", re.IGNORECASE)
_FRAMES = ("In other words, {}", "That is, {}", "To put it plainly, {}", "Once more, {}")

Rule = Callable[[str, Random, Sequence[str]], str | None]
"""From a text, and the names that the other texts hold, to what no longer means the same; None if nothing fits."""


@dataclass(frozen=True)
class Flip:
    """A text, another that means the same, and one that does not although it looks much the same."""

    kind: Kind
    text: str
    paraphrase: str
    flip: str


def written_flips() -> list[Flip]:
    """Return the hand-written cases of this package."""
    lines = (files("trans_encoder.evaluation") / "flips.tsv").read_text(encoding="utf-8").splitlines()
    return [Flip(_kind(kind), *texts) for kind, *texts in (line.split("\t") for line in lines[1:])]


def make_flips(texts: Sequence[str], *, limit: int = 100, seed: int = 0) -> list[Flip]:
    """Make cases of texts by rules: up to `limit` of each kind, from texts in random order."""
    random = Random(seed)
    order = list(dict.fromkeys(text.strip() for text in texts if text.strip()))
    random.shuffle(order)
    names = sorted({name for text in order for name in _NAME.findall(text) if name not in _NOT_NAMES})
    found: list[Flip] = []
    for kind in KINDS:
        made = 0
        for text in order:
            flip = _RULES[kind](text, random, names)
            if flip is not None and flip != text:
                found.append(Flip(kind, text, paraphrased(text, random), flip))
                made += 1
                if made == limit:
                    break
    return found


def paraphrased(text: str, random: Random) -> str:
    """Return a text in slightly other words: up to two synonyms or contractions, else a phrase before it."""
    matches = list(_SYNONYM.finditer(text))
    if not matches:
        # A first word that may be a name keeps its capital.
        first = text[0].lower() + text[1:] if text.split()[0] in _OPENINGS else text
        return random.choice(_FRAMES).format(first)
    changed = text
    for match in sorted(random.sample(matches, min(2, len(matches))), key=lambda one: -one.start()):
        other = _SAME[match[0].lower()]
        other = other[0].upper() + other[1:] if match[0][0].isupper() else other
        changed = changed[: match.start()] + other + changed[match.end() :]
    return changed


def _kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind == name)


def _negation(text: str, _random: Random, _names: Sequence[str]) -> str | None:
    """Take a negation out or, where there is none, put one in; questions and several negations are left alone."""
    if _QUESTION.search(text):
        return None
    negations = len(NEGATION.findall(text))
    if negations == 1:
        for pattern, positive in ((_PLAIN_NEGATION, r"\1"), (_CONTRACTED, r"\1"), (_CANNOT, "can")):
            if pattern.search(text):
                return pattern.sub(positive, text, count=1)
        return None
    if negations:
        return None
    match = _AUXILIARY.search(text)
    if match is None or match.start() == 0:
        return None
    return f"{text[: match.end()]} not{text[match.end() :]}"


def _roles(text: str, _random: Random, _names: Sequence[str]) -> str | None:
    """Swap the ends of "from A to B", both sides of a comparison, or two names that are not merely listed."""
    match = _FROM_TO.search(text)
    if match is not None and match[1].lower() != match[3].lower():
        return f"{text[: match.start()]}from {match[3]} {match[2]} {match[1]}{text[match.end() :]}"
    match = _COMPARED.search(text)
    if match is not None and match[1] != match[2]:
        return _exchanged(text, match.span(1), match.span(2))
    names = [one for one in _ANY_NAME.finditer(text) if one[0] not in _NOT_NAMES]
    if len(names) == 2 and names[0][0] != names[1][0]:
        first, second = names
        between = text[first.end() : second.start()]
        if len(between.split()) >= 1 and not _TOGETHER.search(between):
            return _exchanged(text, first.span(), second.span())
    return None


def _exchanged(text: str, first: tuple[int, int], second: tuple[int, int]) -> str:
    parts = text[: first[0]], text[slice(*second)], text[first[1] : second[0]], text[slice(*first)], text[second[1] :]
    return "".join(parts)


def _numbers(text: str, random: Random, _names: Sequence[str]) -> str | None:
    """Change one number."""
    found = list(_NUMBER.finditer(text))
    if found:
        match = random.choice(found)
        place = random.choice([place for place, sign in enumerate(match[0]) if sign.isdigit()])
        digit = random.choice([digit for digit in "123456789" if digit != match[0][place]])
        changed = match[0][:place] + digit + match[0][place + 1 :]
        return text[: match.start()] + changed + text[match.end() :]
    words = list(_NUMBER_WORD.finditer(text))
    if not words:
        return None
    match = random.choice(words)
    other = random.choice([word for word in _NUMBER_WORDS if word != match[0].lower()])
    return text[: match.start()] + (other.capitalize() if match[0][0].isupper() else other) + text[match.end() :]


def _changed_name(text: str, random: Random, names: Sequence[str]) -> str | None:
    """Put another name, weekday or month in the place of one."""
    found = [match for match in _NAME.finditer(text) if match[0] not in _NOT_NAMES]
    if not found:
        return None
    name = random.choice(found)[0]
    alike = next((group for group in _DATES if name in group), None)
    dates = {date for group in _DATES for date in group}
    pool = alike or [other for other in (names if len(names) > 1 else _NAMES) if other not in dates]
    others = [other for other in pool if not re.search(rf"\b{other}\b", text)]
    return re.sub(rf"\b{name}\b", random.choice(others), text) if others else None


def _changed_unit(text: str, random: Random, _names: Sequence[str]) -> str | None:
    """Put another unit or currency after or before a quantity."""
    found = list(_UNIT.finditer(text))
    if found:
        match = random.choice(found)
        return text[: match.start(2)] + _UNITS[match[2]] + text[match.end(2) :]
    match_currency = _CURRENCY.search(text)
    if match_currency is None:
        return None
    other = {"$": "€", "€": "£", "£": "$"}[match_currency[1]]
    return text[: match_currency.start()] + other + text[match_currency.end() :]


_RULES: Mapping[Kind, Rule] = {
    "negation": _negation,
    "roles": _roles,
    "numbers": _numbers,
    "names": _changed_name,
    "units": _changed_unit,
}
