"""One cycle of the method, and its steps as stages of a run folder."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from trans_encoder.config import RunConfig, Scale
from trans_encoder.data import PairSet
from trans_encoder.distill.judges import Judge
from trans_encoder.distill.labels import Known, Vote, fingerprint_of, parts, views_of
from trans_encoder.distill.preparing import (
    AskTeachers,
    ClearDirections,
    Embed,
    JudgeStarts,
    MineAgain,
    Miner,
    SavePairs,
)
from trans_encoder.distill.team import Member, ModelRef, Team, merge_of
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
    identity,
    read_record,
    training_record,
)


def run_cycle(team: Team, steps: "CycleStages", *, cycle: int) -> Team:
    """Let the bi-encoders teach the cross-encoders, and these the bi-encoders."""
    steps.mine_again(team, cycle=cycle)
    if steps.config.strategy == "sequential-ensemble":
        return run_in_turn(team, steps, cycle=cycle)
    labels = steps.label(team, "bi", cycle=cycle)  # sections 2.2 and 2.4
    if steps.config.formulation == "bi":
        return steps.train(team, "bi", labels=labels, cycle=cycle)  # standard self-distillation
    team = steps.train(team, "cross", labels=labels, cycle=cycle)
    labels = steps.label(team, "cross", cycle=cycle)  # sections 2.3 and 2.4
    return steps.train(team, "bi", labels=labels, cycle=cycle)


def run_in_turn(team: Team, steps: "CycleStages", *, cycle: int) -> Team:
    """Let each member learn a cycle of its own from the bi-encoder of the member before it (footnote of section 2.4).

    The very first learns from its own start, as in self-distillation; later cycles go on from the last member.
    """
    for index, member in enumerate(team):
        teacher = member if (cycle, index) == (1, 0) else team[index - 1]
        labels = steps.label((teacher,), "bi", cycle=cycle, learner=member.name)
        team = steps.train(team, "cross", labels=labels, cycle=cycle, learner=index, teachers=(teacher,))
        labels = steps.label((team[index],), "cross", cycle=cycle, learner=member.name)
        team = steps.train(team, "bi", labels=labels, cycle=cycle, learner=index, teachers=(team[index],))
    return team


@dataclass
class CycleStages:
    """Does the steps of a cycle in a run folder, each unless it is already done."""

    folder: ClaimedRun
    config: RunConfig
    judge: Judge | None
    miner: Miner | None = None
    """Mines the pairs of every cycle but the first; without it all cycles have the same pairs."""
    later: PairSet | None = None
    """The pairs of every cycle but the first, if that learns from some of them only."""
    held_out: PairSet | None = None
    """Pairs that the judge keeps to itself."""
    teachers: tuple[Vote, ...] = ()
    """Frozen teachers."""
    # Hashing a model reads all of its weights, and every stage asks for those of its teachers.
    _digests: dict[ModelRef, Any] = field(default_factory=dict)
    _history: list[HistoryLine] = field(default_factory=list)

    def prepare(self, team: Team, pairs: PairSet) -> Team:
        """Put the pairs and the starts' scores into the run folder; return the team as it begins."""
        starts = tuple(member.given for member in team)
        inputs = {"models": [self.digest(start) for start in starts], "judge": self._judged_by()}
        layout, stage = self.layout, self.folder.stage
        self.folder.complete([stage(layout.pairs(), {"pairs": pairs.hash}, SavePairs(pairs), by="owner")])
        self.folder.complete([stage(layout.start, inputs, JudgeStarts(starts, self.judge), by="all")])
        if self.judge is not None:
            starts_scored = read_record(StartRecord, layout.start).root
            self._history = [
                HistoryLine(cycle=0, member=name, kind="bi", step=0, epoch=0.0, loss=None, score=start.score)
                for name, start in starts_scored.items()
            ]
        if votes := self._asked():
            held_out = cast(PairSet, self.held_out)
            work = AskTeachers(held_out, tuple(vote.teacher for vote in votes))
            asked = {"pairs": held_out.hash, **self._beside()}
            self.folder.complete([stage(layout.held_out, asked, work, by="all")])
        return self._cleared(team)

    def _asked(self) -> tuple[Vote, ...]:
        """Return the frozen teachers that are asked about every held-out pair."""
        return tuple(vote for vote in self.teachers if vote.ask == 1) if self.held_out is not None else ()

    def _cleared(self, team: Team) -> Team:
        """Remove common directions from the embeddings of the starts that are to lose them."""
        places = {member.name: self.layout.cleared_start(member.name) for member in team if member.directions}
        cleared = tuple(
            member.with_start(member.start.at(places[member.name], pooling=None)) if member.name in places else member
            for member in team
        )
        pairs, stages = self._pairs(1), []
        for member in (member for member in team if member.directions):
            inputs = {"model": self.digest(member.start), "pairs": self.folder.digest(pairs)}
            work = ClearDirections(member.start, pairs, member.directions)
            place = places[member.name]
            stages.append(self.folder.stage(place, {**inputs, "directions": member.directions}, work, by="all"))
        if stages:
            self.folder.complete(stages)
        return cleared

    def mine_again(self, team: Team, *, cycle: int) -> None:
        """Mine the pairs of a later cycle with the team's bi-encoders; an anchor needs the starts' labels of them."""
        starts = tuple(member.start for member in team)
        if self.later is not None and cycle == 2:
            pairs = self.folder.stage(self._pairs(2), {"pairs": self.later.hash}, SavePairs(self.later), by="owner")
            self.folder.complete([pairs])
            self._label_with_starts(starts, cycle=2)
        if self.miner is None or cycle == 1:
            return
        encoders = tuple(member.bi for member in team)
        inputs = {
            "miner": dict(self.miner.fingerprint),
            "encoders": [self.digest(encoder) for encoder in encoders],
            "held_out": self.held_out.hash if self.held_out else None,
        }
        work = MineAgain(self.miner, encoders, cycle, self.held_out)
        self.folder.complete([self.folder.stage(self._pairs(cycle), inputs, work)])
        self._label_with_starts(starts, cycle=cycle)

    def _label_with_starts(self, starts: tuple[ModelRef, ...], *, cycle: int) -> None:
        if self.config.anchor or self.teachers or self._scale != "none":
            self.folder.complete([self._labelling(self._start_labels(cycle), starts, cycle=cycle)])

    def label(self, team: Team, kind: Kind, *, cycle: int, learner: str | None = None) -> Path:
        """Label the pairs with the team's encoders of a kind, for all or for one learner; return the labels' place."""
        path = self.layout.labels(cycle, kind, learner=learner)
        teachers = tuple(member.teacher(kind) for member in team)
        anchored = bool(self.config.anchor) and path != self.layout.labels(1, "bi")
        self.folder.complete([self._labelling(path, teachers, cycle=cycle, anchored=anchored)])
        return path

    def _labelling(self, path: Path, teachers: tuple[ModelRef, ...], *, cycle: int, anchored: bool = False) -> Stage:
        pairs = self._pairs(cycle)
        made_from: dict[str, Any] = {
            "pairs": self.folder.digest(pairs),
            "teachers": {teacher.name: self.digest(teacher) for teacher in teachers},
        }
        anchor = None
        if anchored:
            labels = self._start_labels(cycle)
            anchor = Anchor(labels, float(self.config.anchor or 0))
            made_from |= {"anchor": anchor.weight, "start_labels": self.folder.digest(labels)}
        start_labels = self._start_labels(cycle)
        work = Label(
            pairs,
            teachers,
            cycle,
            anchor,
            beside=self.teachers,
            scale=self._scale,
            known=None if path == start_labels or not self.teachers else start_labels,
            earlier=tuple(self._start_labels(before) for before in range(1, self._pairs_made_in(cycle))),
        )
        made_from |= self._beside()
        shards = parts(path, work.shards(), root=self.folder.path)
        return self.folder.stage(path, made_from, work, by="all", parts=shards)

    def _beside(self) -> dict[str, Any]:
        """Return what identifies the frozen teachers and the scale; nothing where there are none."""
        if not self.teachers and self._scale == "none":
            return {}
        votes = {vote.teacher.name: [fingerprint_of(vote.teacher), vote.weight, vote.ask] for vote in self.teachers}
        return {"scale": self._scale, "beside": votes}

    @property
    def _scale(self) -> Scale:
        return self.config.scale or "none"

    @property
    def layout(self) -> Layout:
        """Where the run folder keeps what."""
        return self.folder.layout

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

    def train(
        self,
        team: Team,
        kind: Kind,
        *,
        labels: Path,
        cycle: int,
        learner: int | None = None,
        teachers: Team | None = None,
    ) -> Team:
        """Train a student of a kind for every member, or for one, on the same labels; return the team with them.

        `teachers` are the members that made the labels, if not the whole team.
        """
        learners = range(len(team)) if learner is None else [learner]
        if kind == "bi" and self.config.in_batch:
            self._embed([model for index in learners for model in self._embedders(team, team[index])], cycle=cycle)
        places = {index: self.layout.student(cycle, team[index].name, kind) for index in learners}
        self.folder.complete(
            [
                self._training(team, kind, labels=labels, cycle=cycle, index=index, teachers=teachers or team)
                for index in learners
            ]
        )
        self._add_history(places.values())
        return tuple(
            self._taught(member, kind, places[index]) if index in places else member
            for index, member in enumerate(team)
        )

    def _training(self, team: Team, kind: Kind, *, labels: Path, cycle: int, index: int, teachers: Team) -> Stage:
        config, member = self.config, team[index]
        teaches: Kind = "bi" if kind == "cross" or config.formulation == "bi" else "cross"
        student = Student(
            member,
            kind,
            strategy=config.strategy,
            alternate=config.formulation == "alternate",
            seed=stage_seed(config.seed, cycle=cycle, index=index, kind=kind),
        )
        plan = config.cross if kind == "cross" else config.bi_plan(config.members[index])
        both_orders = config.both_orders and kind == "cross"
        inputs = {
            "labels": self.folder.digest(labels),
            "student": [self.digest(model) for model in student.weights()],
            "plan": plan.model_dump(mode="json"),
            "both_orders": both_orders,
            "seed": student.seed,
            "judge": self._judged_by(),
            **self._beside(),
        }
        merge = merge_of(config, kind)
        inputs |= {"merge": merge} if merge < 1 else {}
        inputs |= {"calibrate": True} if kind == "cross" and config.calibrate else {}
        inputs |= {"keep_agreed": config.keep_agreed} if config.keep_agreed < 1 else {}
        hard = config.hard_pairs if kind == "cross" else 0.0
        inputs |= {"hard_pairs": hard} if hard else {}
        in_batch = self._in_batch(team, member, cycle=cycle) if kind == "bi" else None
        if in_batch is not None:
            embedded = [self.folder.digest(file) for file in in_batch.files]
            inputs |= {"in_batch": [in_batch.weight, embedded, in_batch.shares]}
        known = {vote.teacher.name: Known(vote.teacher, self.layout.held_out) for vote in self._asked()}
        work = Train(
            student,
            plan=plan,
            pairs=self._pairs(cycle),
            labels=labels,
            teachers=tuple(each.teacher(teaches) for each in teachers),
            starts=tuple(each.start for each in team),
            cycle=cycle,
            judge=self.judge,
            both_orders=both_orders,
            precision=config.precision,
            trackers=config.trackers,
            logs=self.layout.logs(cycle, member.name, kind),
            made_from=identity(inputs),
            beside=tuple(Vote(known[vote.teacher.name], vote.weight) for vote in self._asked()),
            scale=self._scale,
            own=None if self._scale == "none" else self._start_labels(cycle),
            merge=merge,
            calibrate=config.calibrate,
            keep_agreed=config.keep_agreed,
            views=tuple(known.get(view.name, view) for view in views_of(member, team, self.teachers)),
            hard_pairs=hard,
            in_batch=in_batch,
        )
        return self.folder.stage(self.layout.student(cycle, member.name, kind), inputs, work, by="all")

    def _embedders(self, team: Team, member: Member) -> list[ModelRef]:
        """Return the bi-encoders whose embeddings a member's students learn from: its start, and who may judge them."""
        views = {view.name for view in views_of(member, team, self.teachers)}
        frozen = [vote.teacher for vote in self.teachers if vote.teacher.name in views and vote.teacher.kind == "bi"]
        starts = [other.start for other in team if other.name in views]
        return [member.start, *starts, *(each for each in frozen if isinstance(each, ModelRef))]

    def _embed(self, models: Iterable[ModelRef], *, cycle: int) -> None:
        """Embed the sentences of a cycle's pairs with these models, each once."""
        pairs = self._pairs(cycle)
        self.folder.complete(
            [
                self.folder.stage(
                    self._embeddings(model, cycle=cycle),
                    {"pairs": self.folder.digest(pairs), "model": self.digest(model)},
                    Embed(model, pairs),
                )
                for model in dict.fromkeys(models)
            ]
        )

    def _embeddings(self, model: ModelRef, *, cycle: int) -> Path:
        return self.layout.embeddings(model.name, cycle=None if self.miner is None or cycle == 1 else cycle)

    def _in_batch(self, team: Team, member: Member, *, cycle: int) -> Embedded | None:
        """Return what a student learns of the other sentences of a batch; its own start alone has nothing to teach."""
        models = self._embedders(team, member)
        if not self.config.in_batch or len(models) == 1:
            return None
        weights = {vote.teacher.name: vote.weight for vote in self.teachers}
        files = tuple(self._embeddings(model, cycle=cycle) for model in models)
        return Embedded(files, tuple(weights.get(model.name, 1.0) for model in models), self.config.in_batch)

    def _taught(self, member: Member, kind: Kind, place: Path) -> Member:
        if kind == "bi":
            # The saved folder knows its own pooling and length.
            return member.with_bi(member.start.at(place, pooling=None, max_tokens=None))
        return member.with_cross(member.plm.at(place, max_tokens=None))

    def _add_history(self, places: Iterable[Path]) -> None:
        """Add these trainings to the history; a continued run has them already, and its history never gets shorter."""
        for place in places:
            self._history += read_record(TrainingRecord, training_record(place)).lines()
        path, work = self.layout.history, WriteHistory(self._history)
        if not is_first_rank():
            return
        if not path.exists() or not path.read_bytes().startswith(work.text.encode()):
            work(path)

    def finish(self) -> None:
        """Make sure that the history is whole."""
        work = WriteHistory(self._history)
        inputs = {"history": hashlib.sha256(work.text.encode()).hexdigest()}
        self.folder.complete([self.folder.stage(self.layout.history, inputs, work, by="owner")])

    def digest(self, model: ModelRef) -> Any:
        """Return what identifies a model's content: a finished stage's checksum, or the fingerprint of a start."""
        if model not in self._digests:
            place = Path(model.source)
            # Models of from-text/ are stages of run folders of their own.
            made_here = place.is_relative_to(self.folder.path) and not place.is_relative_to(self.layout.from_text)
            self._digests[model] = self.folder.digest(place) if made_here else model.fingerprint()
        return self._digests[model]

    def _judged_by(self) -> str | None:
        return self.judge.fingerprint if self.judge else None


def stage_seed(seed: int, *, cycle: int, index: int, kind: Kind) -> int:
    """Derive a training's own seed, so that no two trainings of a run share their order of pairs or dropout."""
    entropy = [seed, cycle, index, ("bi", "cross").index(kind)]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])
