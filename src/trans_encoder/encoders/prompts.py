"""Prompts of bi-encoders: what is put before a text, chosen for each side of a pair.

A prompt is given as the name of one of the model's own ("query"), as a text ("query: "), or as "none". Without a choice
the model's default applies, as in `SentenceTransformer.encode`. Students are saved with what was chosen: one prompt for
both sides becomes the model's default prompt, two are saved under the names `sentence1` and `sentence2`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Pooling

from trans_encoder.errors import ConfigurationError

Prompts = str | tuple[str | None, str | None] | None
"""One prompt for both sides, one for each, or the model's own."""

NO_PROMPT = "none"
SIDES = ("sentence1", "sentence2")
_CHOSEN = "chosen"
_NAME = re.compile(r"[\w-]+")
_TASKS = {"query": "query", "document": "document", "passage": "document", "corpus": "document"}
"""The routes of an asymmetric model by the names of prompts, as `encode_query` and `encode_document` choose them."""
_DOCUMENT = ("document", "passage", "corpus")
"""The names of the prompt of texts that are searched, as `encode_document` tries them."""

Side = Literal[0, 1]
"""The first or the second texts of pairs; in a search, queries and the texts that are searched."""


@dataclass(frozen=True)
class Prompt:
    """What is put before the texts of one side, and which route of an asymmetric model they take."""

    text: str = ""
    task: str | None = None


def choose_prompts(model: Any, given: Prompts, *, name: str) -> tuple[Prompt, Prompt]:
    """Find the prompts of both sides, and make what was given the model's own for whoever loads it next."""
    first, second = given if isinstance(given, tuple) else (given, given)
    if first is None and second is None:
        return _own_prompts(model)
    default = Prompt(default_prompt(model))
    chosen = [default if side is None else _find(model, side, name=name) for side in (first, second)]
    _remember(model, chosen)
    return chosen[0], chosen[1]


def search_prompts(model: Any) -> tuple[str | None, str | None]:
    """Return the names of a model's own prompts for queries and for texts that are searched; None where it has none.

    A default prompt is for all texts, and so are the two of a student: with one of these there is nothing to choose.
    """
    if default_prompt(model) or all(model.prompts.get(side) is not None for side in SIDES):
        return None, None
    routes = _has_routes(model)
    known = [name for name, text in model.prompts.items() if text or (routes and text is not None)]
    return ("query" if "query" in known else None), next((name for name in _DOCUMENT if name in known), None)


def prompt_features(model: Any, prompt: Prompt) -> dict[str, Any]:
    """Return the model's inputs besides the tokens: the prompt's length, if it is not pooled, and the route."""
    features: dict[str, Any] = {} if prompt.task is None else {"task": prompt.task}
    skips = any(isinstance(module, Pooling) and not module.include_prompt for module in model.modules())
    if prompt.text and skips:
        features["prompt_length"] = _length(model.tokenizer, prompt.text)
    return features


def _own_prompts(model: Any) -> tuple[Prompt, Prompt]:
    if all(model.prompts.get(side) is not None for side in SIDES):
        return Prompt(model.prompts[SIDES[0]]), Prompt(model.prompts[SIDES[1]])
    return Prompt(default_prompt(model)), Prompt(default_prompt(model))


def _has_routes(model: Any) -> bool:
    return any(isinstance(module, Router) for module in model.modules())


def default_prompt(model: Any) -> str:
    """Return what a model puts before a text if nothing is said."""
    return str(model.prompts.get(model.default_prompt_name or "") or "")


def _find(model: Any, given: str, *, name: str) -> Prompt:
    if not given.strip():
        raise ConfigurationError(
            f'the prompt for {name} is empty; give the name of a prompt, a text such as "query: ", or {NO_PROMPT}'
        )
    routes = _has_routes(model)
    if given in model.prompts and (model.prompts[given] or routes):
        return Prompt(model.prompts[given] or "", _TASKS.get(given) if routes else None)
    if given == NO_PROMPT:
        return Prompt()
    if _NAME.fullmatch(given):
        names = [known for known, text in model.prompts.items() if text]
        raise ConfigurationError(
            f"{name} has no prompt called {given}; "
            f"it has {', '.join(names) or 'none'}. Give {f'one of them, {NO_PROMPT}, or ' if names else ''}"
            f'a text, which has a space or a colon, such as "{given}: "'
        )
    return Prompt(given)


def _remember(model: Any, chosen: Sequence[Prompt]) -> None:
    first, second = (prompt.text for prompt in chosen)
    if first != second:
        model.prompts.update(zip(SIDES, (first, second), strict=True))
        return
    for side in SIDES:
        model.prompts.pop(side, None)
    if not first:
        model.default_prompt_name = None
        return
    names = [known for known, text in model.prompts.items() if text == first]
    model.default_prompt_name = names[0] if names else _CHOSEN
    model.prompts[model.default_prompt_name] = first


def _length(tokenizer: Any, prompt: str) -> int:
    """Count a prompt's tokens as sentence-transformers does: with the special tokens before it, not those after."""
    ids = tokenizer(prompt)["input_ids"]
    return len(ids) - (ids[-1] in tokenizer.all_special_ids)
