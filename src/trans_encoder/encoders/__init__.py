"""Bi-encoders and cross-encoders: load, score, train, save."""

from pathlib import Path

from trans_encoder.encoders.bi import BiEncoder
from trans_encoder.encoders.cross import CrossEncoder
from trans_encoder.encoders.loading import Kind, find_kind

Encoder = BiEncoder | CrossEncoder

__all__ = ["BiEncoder", "CrossEncoder", "Encoder", "Kind", "find_kind", "load_encoder"]


def load_encoder(
    name: str | Path,
    *,
    kind: Kind | None = None,
    max_tokens: int | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> Encoder:
    """Load a saved encoder of either kind; the kind is found from its files unless given."""
    encoder = BiEncoder if (kind or find_kind(name)) == "bi" else CrossEncoder
    return encoder.load(name, max_tokens=max_tokens, device=device, trust_remote_code=trust_remote_code)
