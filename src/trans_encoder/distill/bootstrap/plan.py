"""How stage 0 trains: the objectives and the presets."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from trans_encoder.config import OptimisationPlan
from trans_encoder.errors import ConfigurationError

ObjectiveName = Literal["simcse", "mirror", "neighbours", "similarities"]
PresetName = Literal["small", "paper"]


class ContrastPlan(OptimisationPlan):
    """How a first bi-encoder is tuned."""

    objective: ObjectiveName = "simcse"
    """A sentence's other view: by dropout (simcse), a masked span and dropped heads (mirror), the next (neighbours).
    Or no view, but the teachers' similarities of all sentences of a batch (similarities)."""
    max_sentences: int = Field(gt=1)
    """The most sentences that are used; a longer text is sampled."""
    temperature: float = Field(default=0.05, gt=0)
    """The temperature of Eq. 1, and of the student's cosines under similarities."""
    teacher_temperature: float = Field(default=0.5, gt=0)
    """similarities: the temperature of the teachers' cosines, counted in standard deviations of random pairs."""
    span_tokens: int = Field(default=5, gt=0)
    """mirror: number of adjacent tokens that are masked in one view."""
    drophead: float = Field(default=0.1, ge=0, lt=1)
    """mirror: the probability that an attention head is dropped."""


PRESETS: dict[PresetName, dict[str, Any]] = {
    # Encoders up to about 30M parameters on a CPU, in minutes.
    "small": {
        "max_sentences": 40_000,
        "batch_size": 128,
        "epochs": 1,
        "learning_rate": 1e-4,
        "warmup_ratio": 0.1,
        "dev_steps": 100,
        "group_by_length": True,
        "checkpoint_steps": 50,
    },
    # What SimCSE published for base models.
    "paper": {
        "max_sentences": 1_000_000,
        "batch_size": 64,
        "epochs": 1,
        "learning_rate": 3e-5,
        "max_tokens": 32,
        "weight_decay": 0.0,
        "dev_steps": 125,
    },
}
"""Settings by the preset's name; anything not in a preset has the default of its field."""

_WITH_TEACHERS = {"learning_rate": 2e-4, "epochs": 3}
"""What teachers change in the preset small: a student of them has more to learn than one that has itself alone."""


def make_plan(preset: PresetName, *, objective: ObjectiveName, overrides: Mapping[str, Any]) -> ContrastPlan:
    """Resolve a preset and overrides into a plan."""
    if preset not in PRESETS:
        raise ConfigurationError(f"unknown preset {preset!r} of bootstrap; choose from: {', '.join(PRESETS)}")
    try:
        taught = _WITH_TEACHERS if objective == "similarities" and preset == "small" else {}
        return ContrastPlan.model_validate({**PRESETS[preset], **taught, "objective": objective, **overrides})
    except ValidationError as error:
        problems = [f"{each['loc'][0]}: given {each['input']!r}, {each['msg']}" for each in error.errors()]
        raise ConfigurationError("\n  ".join(["the settings of bootstrap cannot be used:", *problems])) from error
