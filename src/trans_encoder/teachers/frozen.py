"""Frozen teachers: scorers that take part in every labelling and are never trained.

A teacher is a small object that can be sent to another process: it holds references and loads what it needs when it is
asked. Encoders and re-rankers are `ModelRef`s; the others are here.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from trans_encoder.config import BM25, FUNCTION, LEXICAL, SCORE_FILES, TOKENS, TeacherConfig, free_name
from trans_encoder.data import PairSet, Scores, matched_words, shared_wording
from trans_encoder.data.columns import SCORE_NAMES
from trans_encoder.encoders import BiEncoder, Scorer, checked_name, find_kind
from trans_encoder.encoders.matching import match_tokens
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.evaluation.ensembles import Ensemble, is_ensemble
from trans_encoder.files import sha256
from trans_encoder.teachers.reference import ModelRef

Teacher = Scorer
"""Anything that scores pairs: an encoder, or a checkpoint that is loaded when it is used."""
ScoreFunction = Callable[[list[tuple[str, str]]], Sequence[float]]
"""What a Python teacher is: pairs of texts in, one finite number for each out; higher is more alike."""


@dataclass(frozen=True)
class Vote:
    """A teacher's part in the labels: how much it counts, and which share of the pairs it is asked about."""

    teacher: Teacher
    weight: float = 1.0
    ask: float = 1.0


_WORDING = {
    LEXICAL: (shared_wording, "letter groups of 3 to 5, sublinear TF-IDF"),
    BM25: (matched_words, "BM25 of words, both ways"),
}


@dataclass(frozen=True)
class WordingTeacher:
    """Scores pairs by the wording that they share: TF-IDF of letter groups (`lexical`) or BM25 of words (`bm25`)."""

    name: str
    kind: str = LEXICAL
    needs_all_pairs = True

    def score(self, pairs: PairSet) -> Scores:
        """Return how much wording is shared, weighted by the pairs' own texts."""
        measure, _ = _WORDING[self.kind]
        return measure(pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist())

    def fingerprint(self) -> dict[str, str]:
        """Tell apart ways of scoring."""
        return {"view": _WORDING[self.kind][1]}


@dataclass(frozen=True)
class TokenTeacher:
    """Scores pairs by matching the token embeddings of a bi-encoder, rare tokens first."""

    name: str
    model: ModelRef
    kind = "tokens"
    needs_all_pairs = True

    def score(self, pairs: PairSet) -> Scores:
        """Return the idf-weighted F1 of matched tokens."""
        return match_tokens(cast(BiEncoder, self.model.load()), pairs)

    def fingerprint(self) -> dict[str, str]:
        """Tell apart the models whose tokens are matched."""
        return {"view": "idf-weighted token matching", **self.model.fingerprint()}


@dataclass(frozen=True)
class ScoreFile:
    """Looks scores up in a file: an LLM's, an API's, people's. A pair that is not in it has none (NaN)."""

    name: str
    path: Path
    kind = "scores"

    @cached_property
    def _scores(self) -> Mapping[tuple[str, str], float]:
        pairs = PairSet.read(self.path)
        if pairs.scores is None:
            raise ConfigurationError(
                f"teacher {self.path} has no scores; expected two texts in each row and a column called "
                f"{' or '.join(SCORE_NAMES)}"
            )
        found: dict[tuple[str, str], float] = {}
        for first, second, score in pairs.rows():
            found[first, second] = cast(float, score)
        return found

    def score(self, pairs: PairSet) -> Scores:
        """Return each pair's score, in either order of its texts."""
        known = self._scores
        found = [known.get((first, second), known.get((second, first), np.nan)) for first, second, _ in pairs.rows()]
        return np.asarray(found, dtype=np.float32)

    def check(self, pairs: PairSet) -> None:
        """Refuse a file that has a score for none of a run's pairs."""
        if np.isnan(self.score(pairs)).all():
            raise DataError(
                f"teacher {self.path} has a score for none of the {len(pairs):,} pairs; its texts must be written "
                f"exactly as in the pairs"
            )

    def fingerprint(self) -> dict[str, str]:
        """Tell apart files by their content."""
        return {"file": sha256(self.path)}


@dataclass(frozen=True)
class FunctionTeacher:
    """Asks a Python function: a service, an LLM, a rule."""

    name: str
    function: ScoreFunction
    kind = "function"

    @property
    def needs_all_pairs(self) -> bool:
        """Whether the function says that its scores depend on all the pairs, so that it must not be asked in parts."""
        return bool(getattr(self.function, "needs_all_pairs", False))

    def score(self, pairs: PairSet) -> Scores:
        """Return what the function returns, one number for each pair."""
        asked = [(first, second) for first, second, _ in pairs.rows()]
        scores = np.asarray(self.function(asked), dtype=np.float32)
        if scores.shape != (len(asked),):
            raise DataError(
                f"teacher {self.name} returned scores of shape {scores.shape} for {len(asked):,} pairs; "
                f"expected one number for each"
            )
        return scores

    def fingerprint(self) -> dict[str, str]:
        """Tell apart functions by their name and source; what they ask may still change unseen."""
        if isinstance(self.function, Identified):
            return dict(self.function.fingerprint())
        try:
            source = inspect.getsource(self.function)
        except (OSError, TypeError, SyntaxError, TokenError):  # not in a file, or the file holds something else there
            source = ""
        name = f"{self.function.__module__}.{getattr(self.function, '__qualname__', type(self.function).__name__)}"
        return {"function": name, "source": hashlib.sha256(source.encode()).hexdigest()}


@dataclass(frozen=True)
class ScoredBy:
    """A Python object with a method `score`, such as an encoder or an ensemble, as a function."""

    scorer: Scorer

    def __call__(self, pairs: list[tuple[str, str]]) -> Sequence[float]:
        """Return what the object gives to the pairs."""
        return cast(Sequence[float], self.scorer.score(PairSet.of(pairs)))

    @property
    def needs_all_pairs(self) -> bool:
        """Whether the object says that its scores depend on all the pairs."""
        return bool(getattr(self.scorer, "needs_all_pairs", False))

    def fingerprint(self) -> dict[str, str]:
        """Tell apart objects as they do it themselves, else by their class."""
        known = dict(self.scorer.fingerprint()) if isinstance(self.scorer, Identified) else {}
        return {"object": f"{type(self.scorer).__module__}.{type(self.scorer).__qualname__}", **known}


@dataclass(frozen=True)
class EnsembleTeacher:
    """Asks a saved ensemble, such as the team of an earlier run."""

    name: str
    folder: Path
    device: str | None = None
    trust_remote_code: bool = False
    kind = "ensemble"

    def score(self, pairs: PairSet) -> Scores:
        """Return the weighted mean of its models' ranks."""
        return Ensemble.open(self.folder, device=self.device, trust_remote_code=self.trust_remote_code).score(pairs)

    def fingerprint(self) -> dict[str, str]:
        """Tell apart ensembles by their files."""
        return Ensemble.open(self.folder).fingerprint()


class Named(NamedTuple):
    """Teachers as a configuration has them, and the functions that it can only name."""

    teachers: list[str | TeacherConfig | Mapping[str, Any]]
    functions: dict[str, ScoreFunction]


def name_functions(teachers: Sequence[str | TeacherConfig | Mapping[str, Any] | ScoreFunction | Scorer]) -> Named:
    """Tell Python functions and objects apart from what a configuration can hold, and give each a name."""
    listed: list[str | TeacherConfig | Mapping[str, Any]] = []
    functions: dict[str, ScoreFunction] = {}
    taken: set[str] = set()
    for teacher in teachers:
        if isinstance(teacher, str | TeacherConfig | Mapping):
            listed.append(teacher)
            continue
        asked = ScoredBy(cast(Scorer, teacher)) if hasattr(teacher, "score") else teacher
        if not callable(asked) or hasattr(asked, "encode") or hasattr(asked, "predict"):
            raise ConfigurationError(
                f"teacher {type(teacher).__name__} cannot score pairs; give a model's name, an object with a method "
                f"score, such as BiEncoder.load(...), or a function that takes a list of pairs and returns their scores"
            )
        own_name = getattr(teacher, "__name__", None) or getattr(teacher, "name", None) or type(teacher).__name__
        called = free_name(str(own_name), taken)
        taken.add(called.lower())
        spec = f"{FUNCTION}{called}"
        functions[spec] = asked
        listed.append(TeacherConfig(spec=spec))
    return Named(listed, functions)


def make_teacher(
    settings: TeacherConfig, *, like: ModelRef, functions: Mapping[str, ScoreFunction] | None = None
) -> Teacher:
    """Make a teacher of its settings; its models are loaded `like` another one. Refuse what could not be loaded."""
    teacher = _teacher(settings, like, functions or {})
    if settings.prompts is not None and teacher.kind not in ("bi", TOKENS):
        raise ConfigurationError(
            f"teacher {settings.spec} is no bi-encoder, and prompts are for these; leave prompt out"
        )
    if settings.passes and not isinstance(teacher, ModelRef):
        raise ConfigurationError(f"teacher {settings.spec} has no dropout, and passes are for models; leave passes out")
    return teacher


def _teacher(settings: TeacherConfig, like: ModelRef, functions: Mapping[str, ScoreFunction]) -> Teacher:
    name, spec = str(settings.name), settings.spec
    if spec in _WORDING:
        return WordingTeacher(name, spec)
    if spec == TOKENS:
        return TokenTeacher(name, replace(like, prompts=settings.prompts or like.prompts))
    if spec.startswith(FUNCTION):
        if spec not in functions:
            raise ConfigurationError(
                f"teacher {spec} is a Python function; give the function itself, distil(..., teachers=[function])"
            )
        return FunctionTeacher(name, functions[spec])
    if spec.endswith(SCORE_FILES):
        if not Path(spec).is_file():
            raise ConfigurationError(f"teacher {spec} does not exist; give a file with two texts and a score in a row")
        return ScoreFile(name, Path(spec))
    if is_ensemble(spec):
        return EnsembleTeacher(name, Path(spec).expanduser(), like.device, like.trust_remote_code)
    source = checked_name(spec.removeprefix(f"{TOKENS}:"), trust_remote_code=like.trust_remote_code)
    # Teachers read whole texts, at their own length rather than the students'.
    model = replace(like, name=name, source=source, pooling=None, prompts=settings.prompts, max_tokens=None)
    if spec.startswith(f"{TOKENS}:"):
        return TokenTeacher(name, model)
    kind = find_kind(source)
    return replace(model, kind=kind, both_orders=kind == "cross" and settings.both_orders, passes=settings.passes)


def is_bi_encoder(model: str) -> bool:
    """Whether a teacher that names a model embeds texts: not a cross-encoder, nor a saved ensemble."""
    return not is_ensemble(model) and find_kind(model) == "bi"


@runtime_checkable
class Identified(Protocol):
    """A teacher that can be told apart from another of the same name."""

    def fingerprint(self) -> Mapping[str, str]:
        """Return what tells it apart."""


def fingerprint_of(teacher: Teacher) -> Mapping[str, str]:
    """Return what identifies a teacher beyond its name, if it can be identified."""
    return teacher.fingerprint() if isinstance(teacher, Identified) else {}
