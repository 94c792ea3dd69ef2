"""Models of the studies: each run is done once, in a folder named after everything that determines it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trans_encoder.config import PAPER_METHOD, Kind, MemberConfig, RunConfig, make_config
from trans_encoder.data import PairSet, Task, TestSet, Text, load_task
from trans_encoder.distill.bootstrap import bootstrap
from trans_encoder.distill.judges import DevJudge
from trans_encoder.distill.run import run
from trans_encoder.distill.selection import Candidate, choose
from trans_encoder.distill.team import Member, Team, assemble, resolve_members
from trans_encoder.errors import ConfigurationError, RunError
from trans_encoder.paper.scale import Scale
from trans_encoder.paper.study import Question
from trans_encoder.runs import Layout, Run, short_identity
from trans_encoder.teachers import ModelRef

Family = Literal["paper", "paper-large", "small"]
"""Presets of studies: the paper's for base or large models, as the task asks, or one for small models."""


@dataclass(frozen=True)
class TrainedTeam:
    """A finished run and its team, for its models."""

    folder: Run
    team: Mapping[str, Member]

    def best(self, name: str, kind: Kind) -> ModelRef | None:
        """Return the model of a kind with a member's best dev score over all cycles, if the run trained any.

        As in the paper it is a trained one: the start, which a run keeps where it is better, is in a row of its own.
        """
        member = self.team[name]
        like = member.start if kind == "bi" else member.plm
        trained = [
            Candidate(
                like.at(self.folder.layout.student(moment.cycle, name, kind), pooling=None),
                moment.cycle,
                moment.step,
                moment.score,
            )
            for moment in self.folder.history
            if (moment.member, moment.kind) == (name, kind)
        ]
        return choose(trained).model if trained else None


@dataclass(frozen=True)
class StudyModels:
    """Tasks, settings and the folder of the runs that studies share."""

    out: Path
    data_dir: Path | None
    scale: Scale
    preset: Family
    overrides: Mapping[str, Any]
    pair_counts: dict[str, int] = field(default_factory=dict)
    """How many pairs each task had to learn from."""
    run_names: set[str] = field(default_factory=set)
    """The folders of the runs that were asked for."""
    _tasks: dict[str, Task] = field(default_factory=dict)
    _runs: dict[str, TrainedTeam | RunError] = field(default_factory=dict)

    def task(self, name: str) -> Task:
        """Load a task, once, at the scale of the study."""
        if name not in self._tasks:
            task = load_task(name, data_dir=self.data_dir)
            self._tasks[name] = task if name == "snli" else self.scale.task(task)
        return self._tasks[name]

    def start(self, question: Question, member: MemberConfig) -> ModelRef:
        """Return the first bi-encoder of a member as the user has it: its row is what `evaluate` gives."""
        return _team(self._config(question, [member], seed=0))[0].given

    def run(self, question: Question, members: Sequence[MemberConfig], *, seed: int) -> TrainedTeam:
        """Let the members teach each other; a run that was made before, for whichever study, is taken as it is.

        A run that breaks down is not tried again for the next question about it.
        """
        asked = [question.task, question.share, question.extra, dict(question.overrides), seed]
        key = short_identity([asked, [member.model_dump() for member in members]])
        if key not in self._runs:
            try:
                self._runs[key] = self._distil(question, members, seed=seed)
            except RunError as error:
                self._runs[key] = error
        made = self._runs[key]
        if isinstance(made, RunError):
            raise made
        return made

    def contrast(self, question: Question, member: MemberConfig, *, seed: int) -> ModelRef:
        """Tune a member's first bi-encoder contrastively, with the task's pairs as positives (Eq. 1).

        The tuned model is returned even where tuning made it worse on dev: the study is about what tuning does.
        """
        start, pairs, dev = self.start(question, member), self._pairs(question, seed=seed), self._dev(question)
        preset: Literal["small", "paper"] = "small" if self.preset == "small" else "paper"
        made_from = [start.source, start.fingerprint(), start.pooling, preset, seed, pairs.hash, dev.pairs.hash]
        key = short_identity([*made_from, "tuned"])
        folder = self._folder(question.task, "contrastive", start.name, key)
        # The two sentences of a pair are neighbours in a document of their own.
        sentences = [sentence for first, second, _ in pairs.rows() for sentence in (first, second)]
        text = Text.from_sentences(sentences, documents=[place // 2 for place in range(len(sentences))])
        options: dict[str, Any] = {"objective": "neighbours", "preset": preset, "seed": seed, "dev": dev}
        bootstrap(text, start.source, out=folder, pooling=start.pooling, keep_start=False, **options)
        return start.at(Layout(folder).trained("bi"), pooling=None)

    def _distil(self, question: Question, members: Sequence[MemberConfig], *, seed: int) -> TrainedTeam:
        config, pairs = self._config(question, members, seed=seed), self._pairs(question, seed=seed)
        team, judge = _team(config), DevJudge(self._dev(question))
        models = [[member.start.fingerprint(), member.plm.fingerprint()] for member in team]
        key = short_identity([config.model_dump(mode="json"), pairs.hash, judge.fingerprint, models])
        folder = self._folder(question.task, *(member.name for member in team), key)
        run(config, pairs, out=folder, judge=judge)
        return TrainedTeam(Run.open(folder), {member.name: member for member in team})

    def _config(self, question: Question, members: Sequence[MemberConfig], *, seed: int) -> RunConfig:
        """Put the preset, the scale, the user's settings and the question's own together."""
        preset = self._preset(question.task)
        settings = {
            **self.scale.settings(preset),
            **PAPER_METHOD,
            "both_orders": self.task(question.task).symmetric,
            **self.overrides,
            **question.overrides,
            **self.scale.limits(),
            "seed": seed,
        }
        return make_config(members, preset=preset, overrides=settings)

    def _preset(self, task: str) -> str:
        if self.preset == "small":
            return "small"
        kind = "binary" if self.task(task).metric == "auc" else "sts"
        return self.preset.replace("paper", f"paper-{kind}")

    def _pairs(self, question: Question, *, seed: int) -> PairSet:
        """Return the pairs that a question's models learn from; the seed decides which, if not all are taken."""
        pool = self.task(question.task).pairs
        self.pair_counts[question.task] = len(pool)
        pairs = pool if question.share == 1 else pool.sample(round(question.share * len(pool)), seed)
        if question.extra:
            pairs = pairs.concat(self.task("snli").pairs.sample(round(question.extra * len(pool)), seed))
        return pairs

    def _dev(self, question: Question) -> TestSet:
        dev = self.task(question.task).dev
        if dev is None:
            raise ConfigurationError(f"task {question.task} has no dev set to choose checkpoints by; use another task")
        return dev

    def _folder(self, *parts: str) -> Path:
        name = "-".join(parts)
        self.run_names.add(name)
        return self.out / "runs" / name


def _team(config: RunConfig) -> Team:
    return assemble(resolve_members(config)[0])
