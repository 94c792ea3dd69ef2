"""Which columns of a file hold the two sentences and the score: found by name, or given."""

from collections.abc import Callable, Collection, Sequence

from trans_encoder.errors import DataError

Select = Callable[[Sequence[str]], Sequence[str | None]]
"""From the names that a file has to the names that are wanted, in order; None stands for one that may be absent."""

SENTENCE_NAMES = (
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("sent1", "sent2"),
    ("text1", "text2"),
    ("text_1", "text_2"),
    ("text_a", "text_b"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("query", "passage"),
    ("query", "document"),
    ("question", "answer"),
    ("question", "sentence"),
    ("anchor", "positive"),
    ("left", "right"),
    ("s1", "s2"),
    ("a", "b"),
)
SCORE_NAMES = ("score", "similarity", "similarity_score", "relatedness_score", "gold", "label", "is_duplicate")

TEXT_NAMES = (
    *("text", "sentence", "content", "document", "passage", "body", "article", "abstract"),
    *("message", "description", "question", "comment", "review"),
)


class ColumnError(DataError):
    """The columns that are wanted are not there, or hold something else; the caller adds where."""


def pair_columns(given: Sequence[str] | None, *, scores: bool = True) -> Select:
    """Select the given columns (two sentences and, third, a score), or else find them by their usual names."""
    if given is None:
        return _find_pair if scores else lambda seen: [*_find_pair(seen)[:2], None]
    wanted = list(given)
    if isinstance(given, str) or len(wanted) not in (2, 3) or len(set(wanted)) != len(wanted):
        raise DataError(f"columns must be two or three different names (sentence, sentence, score), not {given!r}")
    names = wanted if scores else wanted[:2]
    return lambda seen: [*require(seen, names), None][:3]


def text_column(given: str | None) -> Select:
    """Select the given column, or else the one that holds text by its usual name, or the only one."""
    if given is not None:
        return lambda seen: require(seen, [given])
    return _find_text


def _find_text(seen: Sequence[str]) -> Sequence[str | None]:
    names = {name.strip().casefold(): name for name in reversed(seen)}
    found = next((names[name] for name in TEXT_NAMES if name in names), seen[0] if len(seen) == 1 else None)
    if found is None:
        raise ColumnError(f"no known column of text such as text or sentence ({_shown(seen)}); name it with --column")
    return [found]


def positions(given: Sequence[str] | None) -> list[int] | None:
    """Return zero-based positions where the columns were given as 1, 2, ...: such a TSV or CSV file has no header."""
    if given is None or not all(name.isdecimal() and 0 < int(name) <= 1000 for name in given):
        return None
    return [int(name) - 1 for name in given]


def require(seen: Sequence[str], wanted: list[str]) -> list[str]:
    """Return the wanted names; raise ColumnError naming those that are missing."""
    missing = [name for name in wanted if name not in seen]
    if missing:
        raise ColumnError(f"no column {' or '.join(map(repr, missing))} ({_shown(seen)})")
    return wanted


def _find_pair(seen: Sequence[str]) -> Sequence[str | None]:
    names = {name.strip().casefold(): name for name in reversed(seen)}
    for first, second in SENTENCE_NAMES:
        if first in names and second in names:
            score = next((names[name] for name in SCORE_NAMES if name in names), None)
            return names[first], names[second], score
    raise ColumnError(
        f"no known pair of columns such as sentence1 and sentence2 ({_shown(seen)}); name them with "
        "--columns LEFT,RIGHT[,SCORE], or by position, --columns 1,2[,3], if a TSV or CSV file has no header"
    )


def free_names(names: Sequence[str], *, taken: Collection[str], change: Callable[[str], str]) -> list[str]:
    """Return the names, those that are `taken` changed until they are no other column's either."""
    used = {*taken, *names}
    free = []
    for name in names:
        if name in taken:
            while name in used:
                name = change(name)
            used.add(name)
        free.append(name)
    return free


def _shown(seen: Sequence[str]) -> str:
    return "columns seen: " + (", ".join(repr(name[:40]) for name in seen[:12]) or "none")
