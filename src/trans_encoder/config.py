"""The configuration of a run: pydantic models, TOML and the presets."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TrainingPlan(_Frozen):
    """How one kind of encoder is trained in each cycle."""

    loss: Literal["bce", "mse", "log-cosh"]
    """Loss between the student's score and the label: bce (Eq. 2), mse (Eq. 3) or log-cosh."""
    batch_size: int = Field(gt=0)
    """Pairs in a batch."""
    epochs: int = Field(gt=0)
    """Passes over the labelled pairs."""
    learning_rate: float = Field(gt=0)
    """Peak learning rate; it decays linearly to zero."""
    warmup_ratio: float = Field(default=0.0, ge=0, le=1)
    """Share of the steps in which the learning rate rises to its peak."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW weight decay, on everything but biases and layer norms."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are clipped to this norm."""
    max_tokens: int = Field(gt=2)
    """Longest input: of a sentence for a bi-encoder, of a pair for a cross-encoder."""
    dev_steps: int = Field(default=200, gt=0)
    """A checkpoint is judged every so many steps, and at the end of each epoch."""
    checkpoint_steps: int = Field(default=200, gt=0)
    """The trainer's state is saved every so many steps; a killed run continues from there."""
