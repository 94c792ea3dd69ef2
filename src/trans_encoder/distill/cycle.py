"""One cycle of the method, and the workshop that turns its steps into stages of a run folder."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trans_encoder.config import RunConfig, Scale
from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.judges import Judge
from trans_encoder.distill.labels import Vote, fingerprint_of
from trans_encoder.distill.remining import MineAgain, Miner
from trans_encoder.distill.shards import parts
from trans_encoder.distill.team import Member, ModelRef, Team
from trans_encoder.distill.work import TRAINING, Anchor, JudgeStarts, Label, SavePairs, Student, Train, WriteHistory
from trans_encoder.encoders import Kind
from trans_encoder.files import read_json
from trans_encoder.ranks import is_first_rank
from trans_encoder.runs.manifest import PREPARED, RunFolder
from trans_encoder.runs.stages import Stage
from trans_encoder.runs.trackers import LOGS

PAIRS, START, HISTORY = "pairs.arrow", "start.json", "history.jsonl"
_FIRST_LABELS = "cycle-1/labels-bi.parquet"


def run_cycle(team: Team, workshop: "Workshop", *, cycle: int) -> Team:
    """Let the bi-encoders teach the cross-encoders, and these the bi-encoders."""
    workshop.mine_again(team, cycle=cycle)
    if workshop.config.strategy == "sequential-ensemble":
        return run_in_turn(team, workshop, cycle=cycle)
    labels = workshop.label(team, "bi", cycle=cycle)  # sections 2.2 and 2.4
    if workshop.config.formulation == "bi":
        return workshop.train(team, "bi", labels=labels, cycle=cycle)  # standard self-distillation
    team = workshop.train(team, "cross", labels=labels, cycle=cycle)
    labels = workshop.label(team, "cross", cycle=cycle)  # sections 2.3 and 2.4
    return workshop.train(team, "bi", labels=labels, cycle=cycle)


def run_in_turn(team: Team, workshop: "Workshop", *, cycle: int) -> Team:
    """Let each member learn a cycle of its own from the bi-encoder of the member before it (footnote of section 2.4).

    The very first learns from its own start, as in self-distillation; later cycles go on from the last member.
    """
    for index, member in enumerate(team):
        teacher = member if (cycle, index) == (1, 0) else team[index - 1]
        labels = workshop.label((teacher,), "bi", cycle=cycle, learner=member.name)
        team = workshop.train(team, "cross", labels=labels, cycle=cycle, learner=index, teachers=(teacher,))
        labels = workshop.label((team[index],), "cross", cycle=cycle, learner=member.name)
        team = workshop.train(team, "bi", labels=labels, cycle=cycle, learner=index, teachers=(team[index],))
    return team


@dataclass
class Workshop:
    """Does the steps of a cycle in a run folder, each unless it is already done."""

    folder: RunFolder
    config: RunConfig
    judge: Judge | None
    miner: Miner | None = None
    """Mines the pairs of every cycle but the first; without it all cycles have the same pairs."""
    held_out: PairSet | None = None
    """Pairs that the judge keeps to itself."""
    teachers: tuple[Vote, ...] = ()
    """Frozen teachers beside the team."""
    _digests: dict[ModelRef, Any] = field(default_factory=dict)
    _history: list[dict[str, Any]] = field(default_factory=list)

    def prepare(self, team: Team, pairs: PairSet) -> None:
        """Put the pairs and the starts' scores into the run folder."""
        starts = tuple(member.given for member in team)
        inputs = {"models": [self.digest(start) for start in starts], "judge": self._judged_by()}
        self.folder.complete([Stage(PAIRS, {"pairs": pairs.hash}, SavePairs(pairs), by="owner")])
        self.folder.complete([Stage(START, inputs, JudgeStarts(starts, self.judge), by="all")])
        if self.judge is not None:
            unlearnt = {"kind": "bi", "step": 0, "epoch": 0.0, "loss": None}
            scores = {name: entry["score"] for name, entry in read_json(self._path(START)).items()}
            self._history = [{"cycle": 0, "member": name, **unlearnt, "score": scores[name]} for name in scores]

    def mine_again(self, team: Team, *, cycle: int) -> None:
        """Mine the pairs of a later cycle with the team's bi-encoders; an anchor needs the starts' labels of them."""
        if self.miner is None or cycle == 1:
            return
        encoders, starts = (tuple(models) for models in zip(*((each.bi, each.start) for each in team), strict=True))
        inputs = {
            "miner": dict(self.miner.fingerprint),
            "encoders": [self.digest(encoder) for encoder in encoders],
            "held_out": self.held_out.hash if self.held_out else None,
        }
        work = MineAgain(self.miner, encoders, cycle, self.held_out)
        self.folder.complete([Stage(self._pairs(cycle), inputs, work)])
        if self.config.anchor or self.teachers or self._scale != "none":
            self.folder.complete([self._labelling(self._start_labels(cycle), starts, cycle=cycle)])

    def label(self, team: Team, kind: Kind, *, cycle: int, learner: str | None = None) -> str:
        """Label the pairs with the team's encoders of a kind, for all or for one learner; return the labels' name."""
        name = f"cycle-{cycle}/{learner + '/' if learner else ''}labels-{kind}.parquet"
        teachers = tuple(member.teacher(kind) for member in team)
        anchored = bool(self.config.anchor) and name != _FIRST_LABELS
        self.folder.complete([self._labelling(name, teachers, cycle=cycle, anchored=anchored)])
        return name

    def _labelling(self, name: str, teachers: tuple[ModelRef, ...], *, cycle: int, anchored: bool = False) -> Stage:
        pairs = self._pairs(cycle)
        made_from: dict[str, Any] = {
            "pairs": self.folder.digest(pairs),
            "teachers": {teacher.name: self.digest(teacher) for teacher in teachers},
        }
        anchor = None
        if anchored:
            labels = self._start_labels(cycle)
            anchor = Anchor(self._path(labels), float(self.config.anchor or 0))
            made_from |= {"anchor": anchor.weight, "start_labels": self.folder.digest(labels)}
        start_labels = self._start_labels(cycle)
        work = Label(
            self._path(pairs),
            teachers,
            cycle,
            anchor,
            beside=self.teachers,
            scale=self._scale,
            known=None if name == start_labels or not self.teachers else self._path(start_labels),
            earlier=tuple(self._path(self._start_labels(before)) for before in range(1, cycle)) if self.miner else (),
        )
        made_from |= self._beside()
        shards = parts(self._path(name), work.shards(), root=self.folder.path)
        return Stage(name, made_from, work, by="all", parts=shards)

    def _beside(self) -> dict[str, Any]:
        """Return what identifies the frozen teachers and the scale; nothing where there are none."""
        if not self.teachers and self._scale == "none":
            return {}
        votes = {vote.teacher.name: [fingerprint_of(vote.teacher), vote.weight, vote.ask] for vote in self.teachers}
        return {"scale": self._scale, "beside": votes}

    @property
    def _scale(self) -> Scale:
        return self.config.scale or "none"

    def _pairs(self, cycle: int) -> str:
        return PAIRS if self.miner is None or cycle == 1 else f"cycle-{cycle}/{PAIRS}"

    def _start_labels(self, cycle: int) -> str:
        """Return the name of the starts' own labels of a cycle's pairs."""
        return _FIRST_LABELS if self.miner is None or cycle == 1 else f"cycle-{cycle}/start-labels.parquet"

    def train(
        self,
        team: Team,
        kind: Kind,
        *,
        labels: str,
        cycle: int,
        learner: int | None = None,
        teachers: Team | None = None,
    ) -> Team:
        """Train a student of a kind for every member, or for one, on the same labels; return the team with them.

        `teachers` are the members that made the labels, if not the whole team.
        """
        learners = range(len(team)) if learner is None else [learner]
        stages = {
            seat: self._training(team, kind, labels=labels, cycle=cycle, seat=seat, teachers=teachers or team)
            for seat in learners
        }
        self.folder.complete(list(stages.values()))
        self._add_history(stage.name for stage in stages.values())
        return tuple(
            self._taught(member, kind, stages[seat].name) if seat in stages else member
            for seat, member in enumerate(team)
        )

    def _training(self, team: Team, kind: Kind, *, labels: str, cycle: int, seat: int, teachers: Team) -> Stage:
        config, member = self.config, team[seat]
        teaches: Kind = "bi" if kind == "cross" or config.formulation == "bi" else "cross"
        student = Student(
            member,
            kind,
            strategy=config.strategy,
            alternate=config.formulation == "alternate",
            seed=stage_seed(config.seed, cycle=cycle, seat=seat, kind=kind),
        )
        work = Train(
            student,
            plan=config.cross if kind == "cross" else config.bi_plan(config.members[seat]),
            pairs=self._path(self._pairs(cycle)),
            labels=self._path(labels),
            teachers=tuple(each.teacher(teaches) for each in teachers),
            starts=tuple(each.start for each in team),
            cycle=cycle,
            judge=self.judge,
            both_orders=config.both_orders and kind == "cross",
            precision=config.precision,
            trackers=config.trackers,
            logs=self._path(f"{LOGS}/cycle-{cycle}-{member.name}-{kind}"),
            beside=self.teachers,
            scale=self._scale,
            own=None if self._scale == "none" else self._path(self._start_labels(cycle)),
            merge=config.merge or 1.0,
            calibrate=config.calibrate,
            keep_agreed=config.keep_agreed,
        )
        inputs = {
            "labels": self.folder.digest(labels),
            "student": [self.digest(model) for model in student.weights()],
            "plan": work.plan.model_dump(),
            "both_orders": work.both_orders,
            "seed": student.seed,
            "judge": self._judged_by(),
        }
        inputs |= self._beside()
        inputs |= {"merge": work.merge} if kind == "bi" and work.merge < 1 else {}
        inputs |= {"keep_agreed": work.keep_agreed} if work.keep_agreed < 1 else {}
        return Stage(f"cycle-{cycle}/{member.name}/{kind}", inputs, work, by="all")

    def _taught(self, member: Member, kind: Kind, stage: str) -> Member:
        if kind == "bi":
            # The saved folder knows its own pooling and length.
            return member.with_bi(member.start.at(self._path(stage), pooling=None, max_tokens=None))
        return member.with_cross(member.plm.at(self._path(stage), max_tokens=None))

    def _add_history(self, stages: Iterable[str]) -> None:
        """Add these trainings to the history; a continued run has them already, and its history never gets shorter."""
        for stage in stages:
            training = read_json(self._path(stage) / TRAINING)
            place = {name: training[name] for name in ("cycle", "member", "kind")}
            self._history += [place | moment for moment in training["history"]]
        path, work = self._path(HISTORY), WriteHistory(self._history)
        if not is_first_rank():
            return
        if not path.exists() or not path.read_bytes().startswith(work.text.encode()):
            work(path)

    def finish(self) -> None:
        """Make sure that the history is whole."""
        work = WriteHistory(self._history)
        inputs = {"history": hashlib.sha256(work.text.encode()).hexdigest()}
        self.folder.complete([Stage(HISTORY, inputs, work, by="owner")])

    def digest(self, model: ModelRef) -> Any:
        """Return what identifies a model's content: a finished stage's checksum, or the fingerprint of a start."""
        if model not in self._digests:
            place = Path(model.source)
            made_here = place.is_relative_to(self.folder.path) and not place.is_relative_to(self._path(PREPARED))
            self._digests[model] = (
                self.folder.digest(place.relative_to(self.folder.path).as_posix()) if made_here else model.fingerprint()
            )
        return self._digests[model]

    def _judged_by(self) -> str | None:
        return self.judge.fingerprint if self.judge else None

    def _path(self, name: str) -> Path:
        return self.folder.path / name


def stage_seed(seed: int, *, cycle: int, seat: int, kind: Kind) -> int:
    """Derive a training's own seed, so that no two trainings of a run share their order of pairs or dropout."""
    entropy = [seed, cycle, seat, ("bi", "cross").index(kind)]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])
