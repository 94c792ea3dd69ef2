"""One cycle of the method (section 2), and its steps as stages of a run folder."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trans_encoder.data import PairSet
from trans_encoder.distill.labels import parts
from trans_encoder.distill.preparing import Embed, MineAgain, Miner, RemoveDirections, ScoreHeldOut, ScoreStarts
from trans_encoder.distill.team import Member, Team
from trans_encoder.distill.work import Cycle, Label, Student, Train, WriteText
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
from trans_encoder.teachers import ModelRef


def run_cycle(team: Team, stages: "CycleStages") -> Team:
    """Let the bi-encoders teach the cross-encoders, and these the next bi-encoders."""
    labels = stages.label(team, "bi")  # section 2.2; the mean of a team: section 2.4
    if stages.cycle.config.formulation == "bi":
        return stages.train(team, "bi", labels)  # standard self-distillation, without cross-encoders
    team = stages.train(team, "cross", labels)  # Eq. 2
    labels = stages.label(team, "cross")  # sections 2.3 and 2.4
    return stages.train(team, "bi", labels)  # Eq. 3


def run_in_turn(team: Team, stages: "CycleStages") -> Team:
    """Let each member learn a cycle of its own from the bi-encoder of the member before it (footnote of section 2.4).

    The very first learns from its own start, as in self-distillation; later cycles go on from the last member.
    """
    for index, member in enumerate(team):
        teacher = member if (stages.cycle.number, index) == (1, 0) else team[index - 1]
        labels = stages.label((teacher,), "bi", learner=member.name)
        (student,) = stages.train((member,), "cross", labels, teachers=(teacher,))
        labels = stages.label((student,), "cross", learner=member.name)
        team = (*team[:index], *stages.train((student,), "bi", labels), *team[index + 1 :])
    return team


@dataclass
class CycleStages:
    """Does the steps of one cycle after another in a run folder, each unless it is already done.

    What a stage is made from is the run's identity (settings, pairs, judge, models and frozen teachers as given) and
    the checksums of the earlier stages that it reads.
    """

    folder: ClaimedRun
    cycle: Cycle
    miner: Miner | None = None
    """Mines the pairs of every cycle but the first; without it all cycles have the same pairs."""
    later: PairSet | None = None
    """The pairs of every cycle but the first, if that learns from some of them only."""
    held_out: PairSet | None = None
    """Pairs that the judge keeps to itself."""
    advance: Callable[[int], None] = lambda _: None
    """Called for each finished training."""
    _history: str = ""

    @property
    def layout(self) -> Layout:
        """Where the run folder keeps what."""
        return self.folder.layout

    def prepare(self, team: Team, pairs: PairSet) -> Team:
        """Put the pairs and the starts' scores into the run folder; return the team as it begins."""
        starts, judge = tuple(member.given for member in team), self.cycle.judge
        self.folder.complete([self.stage(self.layout.pairs(), pairs.save, by="owner", pairs=pairs.hash)])
        self.folder.complete([self.stage(self.layout.start, ScoreStarts(starts, judge))])
        if judge is not None:
            self._history = _as_lines(
                HistoryLine(cycle=0, member=name, kind="bi", step=0, epoch=0.0, loss=None, score=start.score)
                for name, start in read_record(StartRecord, self.layout.start).root.items()
            )
        judging = tuple(vote for vote in self.cycle.frozen if vote.ask == 1)
        if self.held_out is not None and judging:
            work = ScoreHeldOut(self.held_out, tuple(vote.teacher for vote in judging))
            self.folder.complete([self.stage(self.layout.held_out, work)])
            self.cycle = replace(self.cycle, judging=judging)
        team = self._without_directions(team)
        self.cycle = replace(self.cycle, starts=team)
        self._embed()
        return team

    def begin(self, number: int, team: Team) -> None:
        """Go on to a cycle, with its own pairs where it has any; an anchor needs the starts' labels of them."""
        self.cycle = replace(self.cycle, number=number)
        pairs = self.layout.pairs(number)
        if self.later is not None and number == 2:
            stage = self.stage(pairs, self.later.save, by="owner", pairs=self.later.hash)
        elif self.miner is not None and number > 1:
            encoders = tuple(member.bi for member in team)
            work = MineAgain(self.miner, encoders, number, self.held_out)
            stage = self.stage(pairs, work, by="any", encoders=[self.digest(encoder) for encoder in encoders])
        else:
            return
        self.folder.complete([stage])
        self.cycle = replace(self.cycle, pairs_from=number)
        self._embed()
        if self.cycle.config.anchor or self.cycle.frozen or self.cycle.config.scale != "none":
            self._label(self.cycle.start_labels, tuple(member.start for member in team))

    def label(self, team: Team, kind: Kind, *, learner: str | None = None) -> Path:
        """Label the pairs with the team's encoders of a kind, for all or for one learner; return the labels' place."""
        path = self.layout.labels(self.cycle.number, kind, learner=learner)
        self._label(path, tuple(member.teacher(kind) for member in team))
        return path

    def train(self, team: Team, kind: Kind, labels: Path, *, teachers: Team | None = None) -> Team:
        """Train a student of a kind for every member on the same labels; return the members with their students.

        `teachers` are the members that made the labels, if not these.
        """
        trainings = [self._training(member, kind, labels, teachers=teachers or team) for member in team]
        self.folder.complete(trainings, advance=self.advance)
        places = [self.folder.path / training.name for training in trainings]
        self._add_history(places)
        return tuple(member.with_student(kind, place) for member, place in zip(team, places, strict=True))

    def finish(self) -> None:
        """Make sure that the history is whole."""
        work = WriteText(self._history)
        self.folder.complete([self.stage(self.layout.history, work, by="owner", history=identity(self._history))])

    def digest(self, model: ModelRef) -> str:
        """Return the checksum of a model that this run made; of one that was given, which the run's origin knows."""
        place = Path(model.source)
        # Models of from-text/ are stages of run folders of their own.
        made_here = place.is_relative_to(self.folder.path) and not place.is_relative_to(self.layout.from_text)
        return self.folder.digest(place) if made_here else "given"

    def stage(self, path: Path, work: Work, *, by: str = "all", **made_from: Any) -> Stage:
        """Return the stage whose result is at a path of the run folder; see `CycleStages` for what it is made from."""
        return self.folder.stage(path, {"run": self.folder.identity, **made_from}, work, by=by)

    def _label(self, path: Path, teachers: tuple[ModelRef, ...]) -> None:
        teachers = tuple(replace(teacher, passes=self.cycle.config.passes) for teacher in teachers)
        cycle, work = self.cycle, Label(self.cycle, teachers, by_starts=path == self.cycle.start_labels)
        made_from: dict[str, Any] = {
            "pairs": self.folder.digest(cycle.pairs),
            "teachers": {teacher.name: self.digest(teacher) for teacher in teachers},
        }
        if work.embedded:
            made_from["embeddings"] = [self.folder.digest(cycle.embeddings(model)) for model in work.embedded]
        if work.is_anchored:
            made_from["start_labels"] = self.folder.digest(cycle.start_labels)
        shards = parts(path, work.shards(), root=self.folder.path)
        self.folder.complete([replace(self.stage(path, work, **made_from), parts=shards)])

    def _training(self, member: Member, kind: Kind, labels: Path, *, teachers: Team) -> Stage:
        cycle, config = self.cycle, self.cycle.config
        taught_by: Kind = "bi" if kind == "cross" or config.formulation == "bi" else "cross"
        index = [each.name for each in cycle.starts].index(member.name)
        seed = stage_seed(config.seed, cycle=cycle.number, index=index, kind=kind)
        taught = tuple(each.teacher(taught_by) for each in teachers)
        work = Train(cycle, Student(member, kind, config, seed), labels, taught)
        made_from: dict[str, Any] = {
            "labels": self.folder.digest(labels),
            "student": [self.digest(model) for model in work.student.weights()],
        }
        if work.embedded:
            made_from["embeddings"] = [self.folder.digest(cycle.embeddings(model)) for model in work.embedded]
        stage = self.stage(self.layout.student(cycle.number, member.name, kind), work, **made_from)
        return replace(stage, work=replace(work, made_from=identity(stage.inputs)))

    def _embed(self) -> None:
        """Embed the sentences of the cycle's pairs, where students learn from embeddings."""
        pairs = self.cycle.pairs
        digest = self.folder.digest(pairs)
        stages = [
            self.stage(self.cycle.embeddings(each), Embed(each, pairs), by="any", model=self.digest(each), pairs=digest)
            for each in self.cycle.embedders
        ]
        self.folder.complete(stages)

    def _without_directions(self, team: Team) -> Team:
        """Remove common directions from the embeddings of the starts that are to lose them."""
        pairs, stages, result = self.cycle.pairs, [], []
        for member in team:
            if member.directions:
                place = self.layout.cleared_start(member.name)
                work = RemoveDirections(member.start, pairs, member.directions)
                stages.append(self.stage(place, work, pairs=self.folder.digest(pairs)))
                member = member.with_start(member.start.at(place, pooling=None))
            result.append(member)
        self.folder.complete(stages)
        return tuple(result)

    def _add_history(self, places: list[Path]) -> None:
        """Add these trainings to the history; a continued run has them already, and its history never gets shorter."""
        for place in places:
            self._history += _as_lines(read_record(TrainingRecord, training_record(place)).lines())
        path = self.layout.history
        if is_first_rank() and not (path.exists() and path.read_bytes().startswith(self._history.encode())):
            WriteText(self._history)(path)


def stage_seed(seed: int, *, cycle: int, index: int, kind: Kind) -> int:
    """Derive a training's own seed, so that no two trainings of a run share their order of pairs or dropout."""
    entropy = [seed, cycle, index, ("bi", "cross").index(kind)]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def _as_lines(history: Iterable[HistoryLine]) -> str:
    return "".join(line.model_dump_json() + "\n" for line in history)
