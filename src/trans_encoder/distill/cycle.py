"""One cycle of the method (section 2), and its steps as stages of a run folder."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from trans_encoder.config import RunConfig
from trans_encoder.data import PairSet
from trans_encoder.distill.judges import Judge
from trans_encoder.distill.labels import Known, parts
from trans_encoder.distill.preparing import Embed, MineAgain, Miner, RemoveDirections, ScoreHeldOut, ScoreStarts
from trans_encoder.distill.team import Member, Team, embedders_of, views_of
from trans_encoder.distill.work import Anchor, Embedded, Label, Student, Train, WriteHistory
from trans_encoder.encoders import Kind
from trans_encoder.ranks import is_first_rank
from trans_encoder.runs import (
    ClaimedRun,
    HistoryLine,
    Layout,
    Stage,
    StartRecord,
    TrainingRecord,
    Work,
    identity,
    read_record,
    training_record,
)
from trans_encoder.teachers import ModelRef, Vote


def run_cycle(team: Team, steps: "CycleStages", *, cycle: int) -> Team:
    """Let the bi-encoders teach the cross-encoders, and these the next bi-encoders."""
    steps.renew_pairs(team, cycle=cycle)
    if steps.config.strategy == "sequential-ensemble":
        return run_in_turn(team, steps, cycle=cycle)
    labels = steps.label(team, "bi", cycle=cycle)  # section 2.2; the mean of a team: section 2.4
    if steps.config.formulation == "bi":
        return steps.train(team, "bi", labels, cycle=cycle)  # standard self-distillation, without cross-encoders
    team = steps.train(team, "cross", labels, cycle=cycle)  # Eq. 2
    labels = steps.label(team, "cross", cycle=cycle)  # sections 2.3 and 2.4
    return steps.train(team, "bi", labels, cycle=cycle)  # Eq. 3


def run_in_turn(team: Team, steps: "CycleStages", *, cycle: int) -> Team:
    """Let each member learn a cycle of its own from the bi-encoder of the member before it (footnote of section 2.4).

    The very first learns from its own start, as in self-distillation; later cycles go on from the last member.
    """
    for index, member in enumerate(team):
        teacher = member if (cycle, index) == (1, 0) else team[index - 1]
        labels = steps.label((teacher,), "bi", cycle=cycle, learner=member.name)
        (student,) = steps.train((member,), "cross", labels, cycle=cycle, teachers=(teacher,))
        labels = steps.label((student,), "cross", cycle=cycle, learner=member.name)
        team = (*team[:index], *steps.train((student,), "bi", labels, cycle=cycle), *team[index + 1 :])
    return team


@dataclass
class CycleStages:
    """Does the steps of a cycle in a run folder, each unless it is already done.

    What a stage is made from is the run's identity (settings, pairs, judge, models and frozen teachers as given) and
    the checksums of the earlier stages that it reads.
    """

    folder: ClaimedRun
    config: RunConfig
    judge: Judge | None
    miner: Miner | None = None
    """Mines the pairs of every cycle but the first; without it all cycles have the same pairs."""
    later: PairSet | None = None
    """The pairs of every cycle but the first, if that learns from some of them only."""
    held_out: PairSet | None = None
    """Pairs that the judge keeps to itself."""
    frozen: tuple[Vote, ...] = ()
    """Frozen teachers: they label in every cycle and are never trained."""
    _starting: Team = ()
    _history: list[HistoryLine] = field(default_factory=list)

    @property
    def layout(self) -> Layout:
        """Where the run folder keeps what."""
        return self.folder.layout

    def prepare(self, team: Team, pairs: PairSet) -> Team:
        """Put the pairs and the starts' scores into the run folder; return the team as it begins."""
        starts = tuple(member.given for member in team)
        self.folder.complete([self.stage(self.layout.pairs(), pairs.save, by="owner", pairs=pairs.hash)])
        self.folder.complete([self.stage(self.layout.start, ScoreStarts(starts, self.judge))])
        if self.judge is not None:
            self._history = [
                HistoryLine(cycle=0, member=name, kind="bi", step=0, epoch=0.0, loss=None, score=start.score)
                for name, start in read_record(StartRecord, self.layout.start).root.items()
            ]
        if votes := self._judging():
            work = ScoreHeldOut(cast(PairSet, self.held_out), tuple(vote.teacher for vote in votes))
            self.folder.complete([self.stage(self.layout.held_out, work)])
        self._starting = self._without_directions(team)
        self._embed(cycle=1)
        return self._starting

    def renew_pairs(self, team: Team, *, cycle: int) -> None:
        """Give a later cycle its own pairs, where it has any; an anchor needs the starts' labels of them."""
        if self.later is not None and cycle == 2:
            stage = self.stage(self._pairs(2), self.later.save, by="owner", pairs=self.later.hash)
        elif self.miner is not None and cycle > 1:
            encoders = tuple(member.bi for member in team)
            work = MineAgain(self.miner, encoders, cycle, self.held_out)
            made_with = [self.digest(encoder) for encoder in encoders]
            stage = self.stage(self._pairs(cycle), work, by="any", encoders=made_with)
        else:
            return
        self.folder.complete([stage])
        self._embed(cycle=cycle)
        if self.config.anchor or self.frozen or self.config.scale != "none":
            starts = tuple(member.start for member in team)
            self.folder.complete([self._labelling(self._start_labels(cycle), starts, cycle=cycle)])

    def label(self, team: Team, kind: Kind, *, cycle: int, learner: str | None = None) -> Path:
        """Label the pairs with the team's encoders of a kind, for all or for one learner; return the labels' place."""
        path = self.layout.labels(cycle, kind, learner=learner)
        teachers = tuple(member.teacher(kind) for member in team)
        anchored = bool(self.config.anchor) and path != self.layout.labels(1, "bi")
        self.folder.complete([self._labelling(path, teachers, cycle=cycle, anchored=anchored)])
        return path

    def train(self, team: Team, kind: Kind, labels: Path, *, cycle: int, teachers: Team | None = None) -> Team:
        """Train a student of a kind for every member on the same labels; return the members with their students.

        `teachers` are the members that made the labels, if not these.
        """
        self.folder.complete(
            [self._training(member, kind, labels, cycle=cycle, teachers=teachers or team) for member in team]
        )
        places = [self.layout.student(cycle, member.name, kind) for member in team]
        self._add_history(places)
        # The saved folders know their own pooling and length.
        return tuple(
            member.with_bi(member.start.at(place, pooling=None, max_tokens=None))
            if kind == "bi"
            else member.with_cross(member.plm.at(place, max_tokens=None))
            for member, place in zip(team, places, strict=True)
        )

    def finish(self) -> None:
        """Make sure that the history is whole."""
        work = WriteHistory(self._history)
        self.folder.complete([self.stage(self.layout.history, work, by="owner", history=identity(work.text))])

    def digest(self, model: ModelRef) -> str:
        """Return the checksum of a model that this run made; of one that was given, which the run's origin knows."""
        place = Path(model.source)
        # Models of from-text/ are stages of run folders of their own.
        made_here = place.is_relative_to(self.folder.path) and not place.is_relative_to(self.layout.from_text)
        return self.folder.digest(place) if made_here else "given"

    def stage(self, path: Path, work: Work, *, by: str = "all", **made_from: Any) -> Stage:
        """Return the stage whose result is at a path of the run folder; see `CycleStages` for what it is made from."""
        return self.folder.stage(path, {"run": self.folder.identity, **made_from}, work, by=by)

    def _labelling(self, path: Path, teachers: tuple[ModelRef, ...], *, cycle: int, anchored: bool = False) -> Stage:
        pairs, start_labels = self._pairs(cycle), self._start_labels(cycle)
        teachers = tuple(replace(teacher, passes=self.config.passes) for teacher in teachers)
        made_from: dict[str, Any] = {
            "pairs": self.folder.digest(pairs),
            "teachers": {teacher.name: self.digest(teacher) for teacher in teachers},
        }
        encoders = (*teachers, *(vote.teacher for vote in self.frozen))
        embedders = (model for model in self._embedders() if model in encoders and not model.passes)
        embedded = {model: self._embeddings(model, cycle=cycle) for model in embedders}
        if embedded:
            made_from["embeddings"] = [self.folder.digest(file) for file in embedded.values()]
        anchor = None
        if anchored:
            anchor = Anchor(start_labels, float(self.config.anchor or 0))
            made_from["start_labels"] = self.folder.digest(start_labels)
        work = Label(
            pairs,
            teachers,
            cycle,
            anchor,
            frozen=self.frozen,
            scale=self.config.scale or "none",
            known=None if path == start_labels or not self.frozen else start_labels,
            earlier=tuple(self._start_labels(before) for before in range(1, self._pairs_made_in(cycle))),
            embedded=embedded,
        )
        stage = self.stage(path, work, **made_from)
        return replace(stage, parts=parts(path, work.shards(), root=self.folder.path))

    def _training(self, member: Member, kind: Kind, labels: Path, *, cycle: int, teachers: Team) -> Stage:
        config, path = self.config, self.layout.student(cycle, member.name, kind)
        taught_by: Kind = "bi" if kind == "cross" or config.formulation == "bi" else "cross"
        index = [each.name for each in self._starting].index(member.name)
        seed = stage_seed(config.seed, cycle=cycle, index=index, kind=kind)
        student = Student(member, kind, config, seed)
        made_from: dict[str, Any] = {
            "labels": self.folder.digest(labels),
            "student": [self.digest(model) for model in student.weights()],
        }
        in_batch = self._in_batch(member, cycle=cycle) if kind == "bi" else None
        if in_batch is not None:
            made_from["embeddings"] = [self.folder.digest(file) for file in in_batch.files]
        # The frozen teachers have scored the held-out pairs already; they are not asked again to judge a student.
        known = {vote.teacher.name: Known(vote.teacher, self.layout.held_out) for vote in self._judging()}
        work = Train(
            student,
            cycle=cycle,
            pairs=self._pairs(cycle),
            labels=labels,
            start_labels=self._start_labels(cycle),
            teachers=tuple(each.teacher(taught_by) for each in teachers),
            frozen=tuple(Vote(known[vote.teacher.name], vote.weight) for vote in self._judging()),
            starts=tuple(each.start for each in self._starting),
            judge=self.judge,
            views=tuple(known.get(view.name, view) for view in views_of(member, self._starting, self.frozen)),
            in_batch=in_batch,
            logs=self.layout.logs(cycle, member.name, kind),
            made_from=identity({"run": self.folder.identity, **made_from}),
        )
        return self.stage(path, work, **made_from)

    def _embed(self, *, cycle: int) -> None:
        """Embed the sentences of a cycle's pairs, where students learn from embeddings."""
        pairs = self._pairs(cycle)
        made_from = {"pairs": self.folder.digest(pairs)}
        stages = [
            self.stage(
                self._embeddings(each, cycle=cycle), Embed(each, pairs), by="any", model=self.digest(each), **made_from
            )
            for each in self._embedders()
        ]
        self.folder.complete(stages)

    def _embedders(self) -> list[ModelRef]:
        """Return the bi-encoders whose embeddings students learn from, each once."""
        if not self.config.in_batch:
            return []
        team = self._starting
        return list(dict.fromkeys(each for member in team for each in embedders_of(member, team, self.frozen)))

    def _embeddings(self, model: ModelRef, *, cycle: int) -> Path:
        made_in = self._pairs_made_in(cycle)
        return self.layout.embeddings(model.name, cycle=None if made_in == 1 else made_in)

    def _in_batch(self, member: Member, *, cycle: int) -> Embedded | None:
        """Return what a student learns of the other sentences of a batch."""
        models = embedders_of(member, self._starting, self.frozen)
        if not self.config.in_batch or not models:
            return None
        weights = {vote.teacher.name: vote.weight for vote in self.frozen}
        files = tuple(self._embeddings(model, cycle=cycle) for model in models)
        return Embedded(files, tuple(weights.get(model.name, 1.0) for model in models), self.config.in_batch)

    def _judging(self) -> tuple[Vote, ...]:
        """Return the frozen teachers that score every held-out pair."""
        return tuple(vote for vote in self.frozen if vote.ask == 1) if self.held_out is not None else ()

    def _without_directions(self, team: Team) -> Team:
        """Remove common directions from the embeddings of the starts that are to lose them."""
        pairs, stages, result = self._pairs(1), [], []
        for member in team:
            if member.directions:
                place = self.layout.cleared_start(member.name)
                work = RemoveDirections(member.start, pairs, member.directions)
                stages.append(self.stage(place, work, pairs=self.folder.digest(pairs)))
                member = member.with_start(member.start.at(place, pooling=None))
            result.append(member)
        self.folder.complete(stages)
        return tuple(result)

    def _pairs(self, cycle: int) -> Path:
        made_in = self._pairs_made_in(cycle)
        return self.layout.pairs(None if made_in == 1 else made_in)

    def _pairs_made_in(self, cycle: int) -> int:
        """Return the cycle whose pairs this one learns from."""
        if self.miner is not None:
            return cycle
        return min(cycle, 2) if self.later is not None else 1

    def _start_labels(self, cycle: int) -> Path:
        """Return the place of the starts' own labels of a cycle's pairs."""
        made_in = self._pairs_made_in(cycle)
        return self.layout.labels(1, "bi") if made_in == 1 else self.layout.start_labels(made_in)

    def _add_history(self, places: list[Path]) -> None:
        """Add these trainings to the history; a continued run has them already, and its history never gets shorter."""
        for place in places:
            self._history += read_record(TrainingRecord, training_record(place)).lines()
        path, work = self.layout.history, WriteHistory(self._history)
        if is_first_rank() and not (path.exists() and path.read_bytes().startswith(work.text.encode())):
            work(path)


def stage_seed(seed: int, *, cycle: int, index: int, kind: Kind) -> int:
    """Derive a training's own seed, so that no two trainings of a run share their order of pairs or dropout."""
    entropy = [seed, cycle, index, ("bi", "cross").index(kind)]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])
