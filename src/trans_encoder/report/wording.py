"""How the report writes numbers."""

from math import isfinite

from trans_encoder.report.intervals import Interval

_MINUS, _NO_BREAK = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}"
LEVEL = f"95{_NO_BREAK}%"
"""The confidence level of all intervals."""


def number(value: float, digits: int = 1, *, sign: bool = False) -> str:
    """Write a number with a true minus sign and no negative zero; with its sign where it is a difference."""
    if not isfinite(value):
        return "n/a"
    return f"{round(value, digits) + 0.0:{'+' if sign else ''}.{digits}f}".replace("-", _MINUS)


def signed(value: float) -> str:
    """Write a difference of scores with its sign."""
    return number(value, sign=True)


def change(gain: Interval) -> str:
    """Write a gain with its interval."""
    return f"{signed(gain.value)}, {LEVEL} interval {signed(gain.low)} to {signed(gain.high)}"


def memory(size: float) -> str:
    """Write a number of bytes."""
    return f"{size / 2**30:.1f} GB" if size >= 2**30 else f"{size / 2**20:.0f} MB"


def shortened(text: str, limit: int = 14) -> str:
    """Keep a name's beginning and end where it is too long for its place."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"
