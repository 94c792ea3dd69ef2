"""One row that a search found."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Hit:
    """A row, how near it is to the text that was searched for, and its other columns."""

    id: str
    text: str
    score: float
    """The cross-encoder's score if there is one, else the cosine."""
    probability: float
    """An estimate of how likely the row means the same as the text that was searched for."""
    columns: dict[str, Any]
    differs: str | None = None
    """The flip that alone separates the two texts, such as a negation; the probability is low then."""

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)
