"""How encoders are trained: the settings that every kind of training shares, and those of one cycle."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Kind = Literal["bi", "cross"]
"""What an encoder is: a bi-encoder or a cross-encoder."""


class Frozen(BaseModel):
    """Immutable settings: unknown keys are refused, docstrings describe the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class OptimisationPlan(Frozen):
    """How weights are trained, whatever the loss."""

    batch_size: int = Field(gt=0)
    """Examples in a batch."""
    epochs: int = Field(gt=0)
    """Passes over the examples."""
    learning_rate: float = Field(gt=0)
    """Peak learning rate; it decays linearly to zero."""
    warmup_ratio: float = Field(default=0.0, ge=0, lt=1)
    """Share of the steps in which the learning rate rises to its peak."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW weight decay, on everything but biases and layer norms."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are clipped to this norm."""
    max_tokens: int | Literal["auto"] = "auto"
    """Inputs (texts for a bi-encoder, pairs for a cross-encoder) are cut to this length in training; auto leaves at
    least 99 % of them whole, as far as the model goes. A model trained at a given length is also saved with it."""
    group_by_length: bool = False
    """A batch is made of a few runs of inputs of similar length: less padding, but a little less is learnt."""
    dev_steps: int = Field(default=200, gt=0)
    """Number of steps between two validations; each epoch ends with one as well."""
    patience: int = Field(default=0, ge=0)
    """With a dev set, a training ends after this many validations in a row without a better score; 0: never."""
    checkpoint_steps: int = Field(default=200, gt=0)
    """Number of steps between two checkpoints; a killed run continues from the latest."""

    @field_validator("max_tokens", mode="before")
    @classmethod
    def _length(cls, max_tokens: Any) -> Any:
        if max_tokens is None:
            return "auto"
        if max_tokens != "auto" and (isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 3):
            raise ValueError(f'given {max_tokens!r}, must be "auto" or a number of tokens greater than 2')
        return max_tokens

    @property
    def given_tokens(self) -> int | None:
        """The length that was given, if it is not found from the data."""
        return None if self.max_tokens == "auto" else self.max_tokens


class TrainingPlan(OptimisationPlan):
    """How one kind of encoder is trained in each cycle."""

    loss: Literal["bce", "mse", "log-cosh"]
    """Loss between the student's score and the label: bce (Eq. 2), mse (Eq. 3) or log-cosh."""
    negatives: Literal["raw", "clamp"] = "clamp"
    """How bce treats labels outside [0, 1], such as negative cosines: clamp them, or take them raw (the paper)."""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout while a student learns; the model's own if not given."""
