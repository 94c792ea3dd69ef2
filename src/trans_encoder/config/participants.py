"""Who takes part in a run: members, which learn, and frozen teachers, which only score."""

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from trans_encoder.config.plans import Frozen

LEXICAL, BM25, TOKENS = VIEWS = ("lexical", "bm25", "tokens")
"""Teachers that need no model of their own."""
FUNCTION = "function:"
"""Begins the spec of a teacher that is a Python function."""
SCORE_FILES = (".parquet", ".jsonl", ".csv", ".tsv", ".jsonl.gz", ".csv.gz", ".tsv.gz", ".arrow")
"""Ends the spec of a teacher that is a file of scores."""

PoolingMode = Literal["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
"""How token embeddings become a sentence embedding, by sentence-transformers' names."""


_NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?$"  # Windows drops a dot at the end
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", flags=re.IGNORECASE)


class _Prompted(Frozen):
    """Settings of whoever may be a bi-encoder: what is put before its texts."""

    prompt: str | None = Field(default=None, min_length=1)
    """Put before texts: a prompt's name ("query"), a text ("query: ") or none; the model's default if not given."""
    prompt1: str | None = Field(default=None, min_length=1)
    """The prompt of the first texts of pairs, if it is not that of both."""
    prompt2: str | None = Field(default=None, min_length=1)
    """The prompt of the second texts of pairs, if it is not that of both."""

    @property
    def prompts(self) -> tuple[str | None, str | None] | None:
        """The prompts of both sides; None if none was given."""
        sides = self.prompt1 or self.prompt, self.prompt2 or self.prompt
        return None if sides == (None, None) else sides


class MemberConfig(_Prompted):
    """One member of the team: a bi-encoder and the PLM that its cross-encoder starts from."""

    bi: str = Field(min_length=1)
    """The first bi-encoder: a folder or a hub name."""
    plm: str | None = Field(default=None, min_length=1)
    """What the cross-encoder starts from; found from a table or the model's card if not given."""
    pooling: PoolingMode | None = None
    """How token embeddings become a sentence's; read from the checkpoint if not given."""
    supervised: bool | None = None
    """Whether `bi` was trained on labels; found out if not given."""
    learning_rate: float | None = Field(default=None, gt=0)
    """Learning rate of this member's bi-encoders; by default the common one, or a lower one for supervised starts."""
    directions: int | None = Field(default=None, ge=0)
    """Common directions that are removed from this member's embeddings, if not as many as from all members'."""
    name: str | None = Field(default=None, pattern=_NAME)
    """The member's name in the run folder; made from `bi` if not given."""

    @classmethod
    def parse(cls, text: str) -> "MemberConfig":
        """Read `BI` or `BI=PLM`; an existing folder whose own name has an equals sign is taken whole."""
        bi, found, plm = text.partition("=")
        if not found or _exists(text):
            return cls(bi=text)
        if not bi or not plm:
            raise ValueError(f'given "{text}", must be BI or BI=PLM, each a folder or a hub name')
        return cls(bi=bi, plm=plm)

    @field_validator("bi", "plm")
    @classmethod
    def _possible(cls, model: str | None) -> str | None:
        if model is not None:
            _exists(model)
        return model


class TeacherConfig(_Prompted):
    """A frozen scorer that takes part in every labelling and is never trained."""

    spec: str = Field(min_length=1)
    """A model (folder or hub name), `lexical`, `bm25`, `tokens`, a file of scores, or `function:NAME` (in Python)."""
    weight: float = Field(default=1.0, gt=0)
    """Its weight in the mean; the default is 1."""
    ask: float | None = Field(default=None, gt=0, le=1)
    """Share of the pairs that it is asked about: those that the other teachers disagree on most. If not given, the
    run's `ask` for a cross-encoder or a function, and all pairs for others."""
    both_orders: bool = True
    """A cross-encoder scores every pair in both orders; switch off where the order matters."""
    passes: int = Field(default=0, ge=0)
    """A model scores this many times with dropout, and each pair gets the mean; 0: once, without dropout."""
    name: str | None = Field(default=None, pattern=_NAME)
    """The teacher's column in the labels; made from `spec` if not given."""

    @property
    def names_model(self) -> bool:
        """Whether it is a model, rather than a view, a function or a file of scores."""
        spec = self.spec
        return not (spec in VIEWS or spec.startswith((FUNCTION, f"{TOKENS}:")) or spec.endswith(SCORE_FILES))

    @classmethod
    def parse(cls, text: str) -> "TeacherConfig":
        """Read `SPEC` or `SPEC=WEIGHT`; an existing file or folder whose own name has an equals sign is taken whole."""
        spec, found, weight = text.rpartition("=")
        if not found or _exists(text):
            return cls(spec=text)
        try:
            return cls(spec=spec, weight=float(weight))
        except ValueError as error:
            raise ValueError(
                f'given "{text}", must be SPEC or SPEC=WEIGHT with a weight above 0, such as lexical=0.3'
            ) from error


def _exists(model: str) -> bool:
    """Say whether a model is a folder here; raise ValueError for what can be no name of one."""
    try:
        if "\0" in model:
            raise ValueError("it holds a NUL")
        model.encode()
        return Path(model).expanduser().exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{str(error)[:200]}; must be a folder or a hub name") from error


def names_device(name: str) -> bool:
    """Whether Windows takes a name for a device (CON, NUL, COM1, ...), with any ending: it can be no folder there."""
    return _DEVICE.fullmatch(name) is not None


def free_name(model: str, taken: set[str]) -> str:
    """Make a name from a model's, unlike those that are taken (in lower case)."""
    # The folders that runs put models in say nothing of the model: runs/tickets/best/bi is called tickets.
    parts = [part for part in re.split(r"[/\\]", model) if part and part not in ("bi", "best")]
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", parts[-1] if parts else "").strip("._-")[:48].rstrip(".") or "member"
    stem = f"model-{stem}" if names_device(stem) else stem
    names = (stem if number == 1 else f"{stem}-{number}" for number in range(1, 10_000))
    return next(name for name in names if name.lower() not in taken)
