"""Frozen teachers: scorers that take part in every labelling and are never trained.

A teacher is a small object that can be sent to another process: it holds references and loads what it needs when it is
asked. Encoders and re-rankers are `ModelRef`s; the others are here.
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import NamedTuple, cast

import numpy as np

from trans_encoder.config import FUNCTION, LEXICAL, SCORE_FILES, TOKENS, VIEWS, RunConfig, Scale, TeacherConfig
from trans_encoder.data import PairSet, Scores
from trans_encoder.data.wording import shared_wording
from trans_encoder.distill.labels.pseudo_labels import Teacher, Vote, label
from trans_encoder.distill.team import Member, ModelRef, Team, may_know_labels
from trans_encoder.encoders import BiEncoder, RankSharded, checked_name, find_kind
from trans_encoder.encoders.matching import match_tokens
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.files import sha256

ScoreFunction = Callable[[list[tuple[str, str]]], Sequence[float]]
"""What a Python teacher is: pairs of texts in, one finite number for each out; higher is more alike."""

_COSTLY = ("cross", "function")


@dataclass(frozen=True)
class LexicalTeacher:
    """Scores pairs by the wording that they share."""

    name: str
    kind = "lexical"
    needs_all_pairs = True

    def score(self, pairs: PairSet) -> Scores:
        """Return TF-IDF cosines of letter groups, weighted by the pairs' own texts."""
        return shared_wording(pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist())

    def fingerprint(self) -> dict[str, str]:
        """Tell apart ways of scoring."""
        return {"view": "letter groups of 3 to 5, sublinear TF-IDF"}


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
                f"teacher {self.path} has no scores; expected a file with two texts and a score in each row"
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
        try:
            source = inspect.getsource(self.function)
        except (OSError, TypeError, SyntaxError, TokenError):  # not in a file, or the file holds something else there
            source = ""
        name = f"{self.function.__module__}.{getattr(self.function, '__qualname__', type(self.function).__name__)}"
        return {"function": name, "source": hashlib.sha256(source.encode()).hexdigest()}


@dataclass(frozen=True)
class Consensus:
    """Several teachers as one: scores the mean of what they give, on one scale."""

    votes: tuple[Vote, ...]
    scale: Scale
    name = "consensus"
    kind = "consensus"
    needs_all_pairs = True  # ranks among some of the pairs are not those among all

    def score(self, pairs: PairSet) -> Scores:
        """Return the weighted mean of the teachers."""
        votes = [replace(vote, teacher=RankSharded(vote.teacher)) for vote in self.votes]
        return label(pairs, votes, scale=self.scale).scores


class Named(NamedTuple):
    """Teachers as a configuration has them, and the functions that it can only name."""

    teachers: list[str | TeacherConfig]
    functions: dict[str, ScoreFunction]


def name_functions(teachers: Sequence[str | TeacherConfig | ScoreFunction]) -> Named:
    """Tell Python functions apart from what a configuration can hold, and give each a name."""
    listed: list[str | TeacherConfig] = []
    functions: dict[str, ScoreFunction] = {}
    for teacher in teachers:
        if isinstance(teacher, str | TeacherConfig):
            listed.append(teacher)
            continue
        called = re.sub(r"\W+", "-", getattr(teacher, "__name__", type(teacher).__name__)).strip("-_") or "function"
        spec = f"{FUNCTION}{called}" if f"{FUNCTION}{called}" not in functions else f"{FUNCTION}{called}-{len(listed)}"
        functions[spec] = teacher
        listed.append(TeacherConfig(spec=spec, name=spec.removeprefix(FUNCTION)))
    return Named(listed, functions)


def assemble_teachers(
    config: RunConfig, team: Team, functions: Mapping[str, ScoreFunction] | None = None
) -> tuple[Vote, ...]:
    """Make the teachers of a configuration; refuse what could not be loaded."""
    votes = []
    for settings in config.teachers:
        teacher = _teacher(settings, config, team, functions or {})
        share = config.ask if teacher.kind in _COSTLY else 1.0
        votes.append(Vote(teacher, settings.weight, settings.ask or share))
    return tuple(votes)


def check_coverage(teachers: Sequence[Vote], pairs: PairSet) -> None:
    """Refuse files of scores that know none of a run's pairs."""
    for vote in teachers:
        if isinstance(vote.teacher, ScoreFile):
            vote.teacher.check(pairs)


def check_models(config: RunConfig, team: Team) -> None:
    """Load every model of the members and teachers once.

    What is wrong with a tokenizer, prompt, length or head is then told before any work is done.
    """
    models = [model for member in team for model in (member.start, member.plm)]
    for settings in config.teachers:
        if not settings.spec.startswith(FUNCTION):
            teacher = _teacher(settings, config, team, {})
            models += [each for each in (teacher, getattr(teacher, "model", None)) if isinstance(each, ModelRef)]
    for model in dict.fromkeys(model.at(model.source, device="cpu") for model in models):
        model.load()


def views_of(member: Member, team: Team, teachers: Sequence[Vote]) -> tuple[Teacher, ...]:
    """Return who may judge a member's students without labels: other members' starts and frozen teachers.

    Wording and tokens do not count, nor teachers that are not asked about every pair. A start that may have been
    trained on labels is judged by such as may have been, too: weak encoders share errors that it does not have.
    """
    members = [(other.given, other.supervised) for other in team if other.name != member.name]
    frozen = [
        (vote.teacher, _may_be_strong(vote.teacher))
        for vote in teachers
        if vote.ask == 1 and vote.teacher.kind not in VIEWS
    ]
    return tuple(view for view, strong in (*members, *frozen) if strong or not member.supervised)


def embedders_of(member: Member, team: Team, teachers: Sequence[Vote]) -> list[ModelRef]:
    """Return the bi-encoders whose embeddings a member's students learn from: its start, and those that may judge them.

    A start alone has nothing to teach them.
    """
    views = {view.name for view in views_of(member, team, teachers)}
    starts = [other.start for other in team if other.name in views]
    frozen = [vote.teacher for vote in teachers if isinstance(vote.teacher, ModelRef) and vote.teacher.name in views]
    others = [*starts, *(teacher for teacher in frozen if teacher.kind == "bi")]
    return [member.start, *others] if others else []


def _may_be_strong(teacher: Teacher) -> bool:
    """Whether a teacher may be stronger than an encoder made without labels: all but such bi-encoders may."""
    return not (isinstance(teacher, ModelRef) and teacher.kind == "bi") or may_know_labels(teacher.source)


def _teacher(teacher: TeacherConfig, config: RunConfig, team: Team, functions: Mapping[str, ScoreFunction]) -> Teacher:
    found = _found(teacher, config, team, functions)
    if teacher.prompts is not None and found.kind not in ("bi", TOKENS):
        raise ConfigurationError(
            f"teacher {teacher.spec} is no bi-encoder, and prompts are for these; leave prompt out"
        )
    return found


def _found(teacher: TeacherConfig, config: RunConfig, team: Team, functions: Mapping[str, ScoreFunction]) -> Teacher:
    name, spec = str(teacher.name), teacher.spec
    if spec == LEXICAL:
        return LexicalTeacher(name)
    if spec == TOKENS:
        return TokenTeacher(name, replace(team[0].start, prompts=teacher.prompts or team[0].start.prompts))
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
    source = checked_name(spec.removeprefix(f"{TOKENS}:"), trust_remote_code=config.trust_remote_code)
    # Teachers read whole texts, at their own length rather than the students'.
    model = replace(team[0].start, name=name, source=source, pooling=None, prompts=teacher.prompts, max_tokens=None)
    if spec.startswith(f"{TOKENS}:"):
        return TokenTeacher(name, model)
    kind = find_kind(source)
    return replace(model, kind=kind, both_orders=kind == "cross" and teacher.both_orders)
