"""Differences between the settings or inputs that a run was begun with and those given now."""

from collections.abc import Mapping
from typing import Any, cast

Settings = Mapping[str, Any]


def differences(old: Settings, new: Settings) -> list[str]:
    """List the dotted keys whose values differ, with both values."""
    before, after = flat(old), flat(new)
    return [
        f"{key}: was {before.get(key, 'absent')!r}, now {after.get(key, 'absent')!r}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def flat(table: Settings, prefix: str = "") -> dict[str, Any]:
    """Return the plain values of nested mappings and lists by their dotted keys."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            value = {str(number): item for number, item in enumerate(value, start=1)}
        if isinstance(value, Mapping):
            values |= flat(cast(Settings, value), f"{prefix}{key}.")
        else:
            values[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return values
