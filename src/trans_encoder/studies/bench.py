"""Where studies make their models: each run once, in a folder named by all that decides it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trans_encoder.bootstrap import bootstrap
from trans_encoder.config import MemberConfig, RunConfig, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import Task, TestSet, load_task
from trans_encoder.data.text import Text
from trans_encoder.distill.result import Result
from trans_encoder.distill.run import run
from trans_encoder.distill.selection import DevJudge
from trans_encoder.distill.team import Member, ModelRef, assemble, resolve_members
from trans_encoder.encoders import Kind
from trans_encoder.errors import ConfigurationError, RunError
from trans_encoder.studies.predictions import digest
from trans_encoder.studies.scale import Scale
from trans_encoder.studies.study import Question

Family = Literal["paper", "paper-large", "small"]
"""Presets of studies: the paper's for base or large models, as the task asks, or one for small models."""


@dataclass(frozen=True)
class Run:
    """A finished run and its team, for its models."""

    result: Result
    team: Mapping[str, Member]

    def chosen(self, name: str, kind: Kind) -> ModelRef | None:
        """Return a member's chosen model of a kind, if the run made one."""
        chosen, member = self.result.members[name].chosen(kind), self.team[name]
        if chosen is None:
            return None
        return (member.start if kind == "bi" else member.plm).at(self.result.folder / chosen.folder, pooling=None)


@dataclass(frozen=True)
class Bench:
    """Tasks, settings and the folder of the runs that studies share."""

    out: Path
    data_dir: Path | None
    scale: Scale
    preset: Family
    overrides: Mapping[str, Any]
    _tasks: dict[str, Task] = field(default_factory=dict)
    _runs: dict[Path, Run | RunError] = field(default_factory=dict)

    @property
    def pair_counts(self) -> dict[str, int]:
        """How many pairs each task had to learn from."""
        return {name: len(task.pairs) for name, task in sorted(self._tasks.items())}

    @property
    def run_names(self) -> tuple[str, ...]:
        """The folders of the runs that were asked for."""
        return tuple(sorted(folder.name for folder in self._runs))

    def task(self, name: str) -> Task:
        """Load a task, once, at the scale of the study."""
        if name not in self._tasks:
            task = load_task(name, data_dir=self.data_dir)
            self._tasks[name] = task if name == "snli" else self.scale.task(task)
        return self._tasks[name]

    def pairs(self, question: Question, *, seed: int) -> PairSet:
        """Return the pairs that a question's models learn from; the seed decides which, if not all are taken."""
        pool = self.task(question.task).pairs
        pairs = pool if question.share == 1 else pool.sample(round(question.share * len(pool)), seed)
        if question.extra:
            extra = self.task("snli").pairs.sample(round(question.extra * len(pool)), seed)
            pairs = pairs.concat(extra)
        return pairs

    def config(self, question: Question, members: Sequence[MemberConfig], *, seed: int) -> RunConfig:
        """Put the preset, the scale, the user's settings and the question's own together."""
        task, preset = self.task(question.task), self.preset_of(question.task)
        settings = {
            **self.scale.settings(preset),
            "both_orders": task.symmetric,
            **self.overrides,
            **question.overrides,
            **self.scale.limits(),
            "seed": seed,
        }
        return make_config(members, preset=preset, overrides=settings)

    def preset_of(self, task: str) -> str:
        """Return the preset for a task."""
        if self.preset == "small":
            return "small"
        kind = "binary" if self.task(task).metric == "auc" else "sts"
        return self.preset.replace("paper", f"paper-{kind}")

    def start(self, question: Question, member: MemberConfig) -> ModelRef:
        """Return the first bi-encoder of a member."""
        return _team(self.config(question, [member], seed=0))[0].start

    def run(self, question: Question, members: Sequence[MemberConfig], *, seed: int) -> Run:
        """Let the members teach each other; a run that was made before, for whichever study, is taken as it is.

        A run that breaks down is not tried again for the next question about it.
        """
        config, pairs = self.config(question, members, seed=seed), self.pairs(question, seed=seed)
        team, judge = _team(config), DevJudge(self._dev(question))
        models = [[member.start.fingerprint(), member.plm.fingerprint()] for member in team]
        key = digest([config.model_dump(mode="json"), pairs.hash, judge.fingerprint, models])
        folder = self._folder(question.task, *(member.name for member in team), key)
        if folder not in self._runs:
            try:
                result = run(config, pairs, out=folder, judge=judge)
                self._runs[folder] = Run(result, {member.name: member for member in team})
            except RunError as error:
                self._runs[folder] = error
        made = self._runs[folder]
        if isinstance(made, RunError):
            raise made
        return made

    def contrast(self, question: Question, member: MemberConfig, *, seed: int) -> ModelRef:
        """Tune a member's first bi-encoder contrastively, with the task's pairs as positives (Eq. 1)."""
        start, pairs, dev = self.start(question, member), self.pairs(question, seed=seed), self._dev(question)
        preset: Literal["small", "paper"] = "small" if self.preset == "small" else "paper"
        key = digest([start.fingerprint(), start.pooling, preset, seed, pairs.hash, dev.pairs.hash])
        folder = self._folder(question.task, "contrastive", start.name, key)
        # The two sentences of a pair are neighbours in a document of their own.
        sentences = [sentence for first, second, _ in pairs.rows() for sentence in (first, second)]
        text = Text.from_sentences(sentences, documents=[pair // 2 for pair in range(2 * len(pairs))])
        options: dict[str, Any] = {"objective": "neighbours", "preset": preset, "seed": seed, "dev": dev}
        bootstrap(text, start.source, out=folder, pooling=start.pooling, **options)
        return start.at(folder / "bi", pooling=None)

    def _dev(self, question: Question) -> TestSet:
        dev = self.task(question.task).dev
        if dev is None:
            raise ConfigurationError(f"task {question.task} has no dev set to choose checkpoints by; use another task")
        return dev

    def _folder(self, *parts: str) -> Path:
        return self.out / "runs" / "-".join(parts)


def _team(config: RunConfig) -> tuple[Member, ...]:
    return assemble(resolve_members(config)[0])
