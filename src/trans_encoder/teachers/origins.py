"""What is known of a model from a table or its card: the PLM that it was made from, whether it may know labels."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trans_encoder.config import MemberConfig
from trans_encoder.encoders import KNOWN
from trans_encoder.encoders.loading import is_sentence_encoder

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class Origin(NamedTuple):
    """What a cross-encoder starts from and, where that was a default, a note for the user."""

    plm: str
    note: str | None = None


UNSUPERVISED = "unsupervised"
"""The tag of cards whose models were made without labels."""


def may_know_labels(model: str) -> bool:
    """Return whether a model was trained to embed sentences, and on labels for all that is known of it."""
    if model in KNOWN:
        return KNOWN[model].supervised
    return is_sentence_encoder(model) and UNSUPERVISED not in (card_facts(model).get("tags") or ())


def find_plm(member: MemberConfig) -> Origin:
    """Find the PLM of a member: as given, from the table, from the model's card, else the bi-encoder itself."""
    if member.plm is not None:
        return Origin(member.plm)
    if member.bi in KNOWN:
        return Origin(KNOWN[member.bi].plm)
    base = base_model(member.bi)
    if base is None:
        return Origin(
            member.bi,
            f"the PLM of {member.bi} is not known, so its cross-encoders start from the bi-encoder's own weights; "
            f"give {member.bi}=PLM to change that, or {member.bi}=RERANKER: a public re-ranker is the stronger start",
        )
    if Path(member.bi).expanduser().exists():
        # A card is somebody else's text: it must not make a run on local files reach for the network.
        return Origin(
            member.bi,
            f"the card of {member.bi} names the PLM {base}, which was not fetched because a local folder was given; "
            f"cross-encoders start from the bi-encoder's own weights. Give {member.bi}={base} to use it",
        )
    return Origin(base, f"cross-encoders start from {base}, which the card of {member.bi} names")


def base_model(name: str) -> str | None:
    """Return the base model that a model's card names, if it is a plain hub name."""
    named = card_facts(name).get("base_model")
    if isinstance(named, Sequence) and not isinstance(named, str):
        named = named[0] if len(named) == 1 else None
    return named if isinstance(named, str) and _HUB_NAME.fullmatch(named) and named != name else None


def is_hub_name(model: str) -> bool:
    """Return whether a model is named as on the hub and is not a local folder."""
    return _HUB_NAME.fullmatch(model) is not None and not Path(model).expanduser().exists()


def card_facts(model: str) -> dict[str, Any]:
    """Return the metadata of a model card, in a folder or on the hub; empty if there is none."""
    from huggingface_hub import hf_hub_download, metadata_load

    folder = Path(model).expanduser()
    try:
        card = folder / "README.md" if folder.exists() else Path(hf_hub_download(model, "README.md"))
        return metadata_load(card) or {}
    except Exception:  # a card is optional: one that is missing, out of reach or malformed is ignored
        return {}
