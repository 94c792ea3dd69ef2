"""Weight merging: a point on the line between two models of one shape (WiSE-FT, LM-Cocktail)."""

from typing import TypeVar

import torch

from trans_encoder.encoders.bi import BiEncoder
from trans_encoder.encoders.cross import CrossEncoder
from trans_encoder.errors import ConfigurationError

Merged = TypeVar("Merged", BiEncoder, CrossEncoder)


def merge_into(student: Merged, start: Merged, *, share: float) -> Merged:
    """Move the student's weights towards the start's: `share` of the student, the rest of the start; in place.

    What a student learnt shrinks more slowly than what it forgot, so a share below 1 buys safety for little.
    """
    if share == 1:
        return student
    old, new = start.model.state_dict(), student.model.state_dict()
    differing = sorted(name for name in old.keys() | new.keys() if _shape(old, name) != _shape(new, name))
    if differing:
        raise ConfigurationError(
            f"weights of {student.name} and {start.name} cannot be merged, they differ in {len(differing)} tensors "
            f"such as {differing[0]}; set merge=1 to keep the student as it is"
        )
    with torch.no_grad():
        for name, weight in new.items():
            if weight.is_floating_point():
                weight.lerp_(old[name].to(weight), 1 - share)
    return student


def _shape(weights: dict[str, torch.Tensor], name: str) -> torch.Size | None:
    return weights[name].shape if name in weights else None
