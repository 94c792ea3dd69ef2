"""The work of each stage: labelling, training, and putting a chosen model in its place.

Each is a small immutable object that is called with the path of its result. It holds paths and references, no models,
so that it can be sent to another process.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import numpy as np

from trans_encoder.config import Scale, TrainingPlan
from trans_encoder.data import PairSet
from trans_encoder.distill.judges import Judge
from trans_encoder.distill.labels import (
    Consensus,
    Known,
    LabelShard,
    PseudoLabels,
    Remembering,
    Sharded,
    Teacher,
    Vote,
    agreed,
    anchored,
    cut,
    label,
    on_scale_of,
    with_hard_pairs,
)
from trans_encoder.distill.team import Member, ModelRef
from trans_encoder.encoders import (
    BiEncoder,
    CrossEncoder,
    Encoder,
    Kind,
    TrainingOptions,
    calibrate_to,
    count_cuts,
    merge_into,
    train,
)
from trans_encoder.encoders.in_batch import InBatch
from trans_encoder.errors import DataError, RunError
from trans_encoder.evaluation.probe import told_flips
from trans_encoder.files import atomic_file, atomic_folder
from trans_encoder.ranks import is_first_rank
from trans_encoder.runs import (
    CutsRecord,
    HistoryLine,
    TrainingRecord,
    scratch,
    tracked,
    training_record,
    write_record,
)


@dataclass(frozen=True)
class Label:
    """Label the pairs with the mean of the teachers, anchored to the start's labels if asked (section 2.4)."""

    pairs: Path
    teachers: tuple[ModelRef, ...]
    """The members' encoders."""
    cycle: int
    anchor: "Anchor | None" = None
    beside: tuple[Vote, ...] = ()
    """The frozen teachers."""
    scale: Scale = "none"
    known: Path | None = None
    """Labels of the same pairs that hold the frozen teachers' scores already."""
    earlier: tuple[Path, ...] = ()
    """Labels of other pairs, some of which may be among these; no teacher is asked twice about a pair."""

    def __call__(self, path: Path) -> None:
        """Put the shards together, making those that are missing, and write the labels."""
        if not is_first_rank():
            return
        labels = self._put_together(scratch(path))
        if self.anchor is not None:
            start = PseudoLabels.open(self.anchor.labels, pairs=labels.pairs)
            labels = anchored(labels, start, weight=self.anchor.weight)
        labels.save(path)

    def shards(self) -> list[LabelShard]:
        """Return the shards that can be labelled side by side."""
        count = len(PairSet.open(self.pairs))
        return [shard for each in self._sharded() for shard in cut(self.pairs, each, count=count, cycle=self.cycle)]

    def _sharded(self) -> list[ModelRef]:
        """Return the encoders that score every pair now: members, and frozen ones that have not done so yet."""
        frozen = [vote.teacher for vote in self.beside if vote.ask == 1] if self.known is None else []
        return [*self.teachers, *(each for each in frozen if isinstance(each, ModelRef) and not self.earlier)]

    def _put_together(self, folder: Path) -> PseudoLabels:
        shards, pairs = self.shards(), PairSet.open(self.pairs)
        sharded = {
            each: Sharded(each, tuple(shard for shard in shards if shard.teacher == each), folder)
            for each in self._sharded()
        }
        votes = [Vote(sharded[each]) for each in self.teachers]
        for vote in self.beside:
            if self.known is not None:
                votes.append(Vote(Known(vote.teacher, self.known), vote.weight))
            elif vote.teacher in sharded:
                votes.append(Vote(sharded[vote.teacher], vote.weight))
            else:
                votes.append(replace(vote, teacher=Remembering(vote.teacher, self.earlier)))
        try:
            labels = label(pairs, votes, cycle=self.cycle, scale=self.scale)
        except DataError as error:
            raise RunError(f"cycle {self.cycle}, labels of the {self.teachers[0].kind}-encoders: {error}") from error
        frozen = {"frozen": [vote.teacher.name for vote in self.beside]} if self.beside else {}
        return replace(labels, provenance={**labels.provenance, **frozen})


@dataclass(frozen=True)
class Anchor:
    """The start's labels of the same pairs, and their weight."""

    labels: Path
    weight: float


@dataclass(frozen=True)
class Embedded:
    """Several bi-encoders' embeddings of the pairs' sentences, those of the student's start first."""

    files: tuple[Path, ...]
    shares: tuple[float, ...]
    weight: float
    """Of the loss."""

    def targets(self, pairs: PairSet) -> InBatch:
        """Return what they say of every two sentences."""
        embeddings = [np.load(file, mmap_mode="r") for file in self.files]
        return InBatch(pairs.distinct().sentences, embeddings, weight=self.weight, shares=self.shares)


@dataclass(frozen=True)
class Student:
    """A member's student of one stage and where its weights come from (sections 2.2 and 2.3)."""

    member: Member
    kind: Kind
    strategy: Literal["refresh", "sequential", "sequential-ensemble"]
    alternate: bool
    seed: int

    def weights(self) -> list[ModelRef]:
        """Return the models that it is made from; the first gives the weights, a second the pooling."""
        member, refresh = self.member, self.strategy != "sequential"
        if self.kind == "cross":
            return [member.plm if refresh else member.plm.at(member.bi.source)]
        if refresh:
            return [member.start]
        return [member.teacher("cross"), member.start] if self.alternate else [member.bi]

    def load(self) -> Encoder:
        """Load the student with the weights that it starts from."""
        model, *pooled_like = self.weights()
        if self.kind == "cross":
            return model.load_cross(seed=self.seed)
        if pooled_like:
            like = cast(BiEncoder, pooled_like[0].load())
            return BiEncoder.from_body(Path(model.source), like=like, trust_remote_code=model.trust_remote_code)
        return model.load()


@dataclass(frozen=True)
class Train:
    """Train a student on labels and keep its best checkpoint."""

    student: Student
    plan: TrainingPlan
    pairs: Path
    labels: Path
    teachers: tuple[ModelRef, ...]
    """Who made the labels."""
    starts: tuple[ModelRef, ...]
    """Who had a part in them if they are anchored."""
    cycle: int
    judge: Judge | None
    both_orders: bool
    precision: Literal["auto", "fp32", "bf16", "fp16"]
    trackers: tuple[str, ...]
    logs: Path
    """Where the trackers write."""
    made_from: str
    """The stage's identity: the checkpoints of another training are not continued."""
    beside: tuple[Vote, ...] = ()
    """Frozen teachers that had a part in the labels, too."""
    scale: Scale = "none"
    own: Path | None = None
    """Labels with the scores that the member's start gave to the pairs: the scale that its bi-encoders keep."""
    merge: float = 1.0
    """Share of the student in the weights of a new encoder; the rest is the start's."""
    calibrate: bool = False
    """Whether a head that a cross-encoder begins with is calibrated to the labels."""
    keep_agreed: float = 1.0
    """Share of the pairs to learn from, those on which the teachers agree most."""
    views: tuple[Teacher, ...] = ()
    """Who judges a bi-encoder without labels."""
    hard_pairs: float = 0.0
    """Rule-made flips to learn as well, as a share of the pairs."""
    in_batch: "Embedded | None" = None
    """What a bi-encoder's other cosines of a batch should be."""

    def __call__(self, path: Path) -> None:
        """Write the trained model and how its training went."""
        labels = PseudoLabels.open(self.labels, pairs=PairSet.open(self.pairs))
        name, kind = self.student.member.name, self.student.kind
        description = f"cycle {self.cycle}, {kind}-encoder of {name}"
        options = TrainingOptions(
            folder=scratch(path),
            seed=self.student.seed,
            judge=self.judge,
            keep_last=self.judge is not None and not self.judge.has_labels,
            precision=self.precision,
            trackers=self.trackers,
            description=description,
            made_from=self.made_from,
        )
        try:
            targets = self._targets(labels)
            student = self._calibrated(self.student.load(), targets)
            merge = 1.0 if isinstance(student, CrossEncoder) and student.head_is_new else self.merge
            learnt = with_hard_pairs(targets.labelled, share=self.hard_pairs, seed=self.student.seed)
            with tracked(self.trackers, self.logs):
                training = train(
                    student,
                    learnt,
                    plan=self.plan,
                    options=options,
                    both_orders=self.both_orders,
                    in_batch=self.in_batch.targets(labels.pairs) if self.in_batch else None,
                )
            if merge < 1:
                merge_into(cast(BiEncoder, training.encoder), cast(BiEncoder, self._start(targets)), share=merge)
                # Score the merged weights: they are the ones saved.
                training = replace(training, best_score=self.judge(training.encoder) if self.judge else None)
            agreement = self._agreement(training.encoder, anchor=labels.provenance.get("anchor", 0.0))
            evidence = None
            if self.judge is not None and kind == "bi":
                evidence = self.judge.weigh(training.encoder, self.student.member.given, self.views)
            flips = told_flips(training.encoder)
        except DataError as error:
            raise RunError(f"{description}: {error}") from error
        if not is_first_rank():
            return
        with atomic_folder(path) as temporary:
            training.encoder.save(temporary)
            record = TrainingRecord(
                cycle=self.cycle,
                member=name,
                kind=kind,
                seed=self.student.seed,
                labels=len(targets),
                hard=len(learnt) - len(targets),
                cuts=CutsRecord(**training.cuts.to_dict()) if training.cuts else None,
                own_cuts=CutsRecord(**count_cuts(training.encoder, targets.pairs).to_dict()),
                outside=targets.outside_unit if self.plan.loss == "bce" else 0,
                negatives=self.plan.negatives,
                merged=merge,
                best_step=training.best_step,
                best_score=training.best_score,
                agreement=agreement,
                evidence=evidence,
                flips=flips,
                history=tuple(training.history),
            )
            write_record(training_record(temporary), record)

    def _calibrated(self, student: Encoder, targets: PseudoLabels) -> Encoder:
        """Bring the head that a cross-encoder begins with to the scale of its labels."""
        if self.calibrate and isinstance(student, CrossEncoder) and not student.head_is_new:
            calibrate_to(student, targets.labelled)
        return student

    def _start(self, targets: PseudoLabels) -> Encoder:
        """Load what the student is merged with: the first bi-encoder, or the re-ranker, calibrated as it was."""
        member = self.student.member
        if self.student.kind == "bi":
            return member.start.load()
        return self._calibrated(member.plm.load_cross(seed=self.student.seed), targets)

    def _targets(self, labels: PseudoLabels) -> PseudoLabels:
        """Return what the student learns: labels on its own scale, of the pairs that the teachers agree on."""
        if self.own is not None and self.student.kind == "bi":
            own = PseudoLabels.open(self.own, pairs=labels.pairs).by_teacher[self.student.member.name]
            labels = on_scale_of(labels, own)
        return agreed(labels, share=self.keep_agreed)

    def _agreement(self, encoder: Encoder, *, anchor: float) -> float | None:
        if self.judge is None:
            return None
        teachers, starts = self._consensus(self.teachers), self._consensus(self.starts)
        return self.judge.agreement(encoder, teachers, starts=starts, anchor=anchor)

    def _consensus(self, models: tuple[ModelRef, ...]) -> Sequence[Teacher]:
        """Return what stands for the labels of these models: the models, or one scorer where there is more to it."""
        if not self.beside and self.scale == "none":
            return models
        return [Consensus((*map(Vote, models), *self.beside), self.scale)]


@dataclass(frozen=True)
class WriteHistory:
    """Write one JSON line for each validated checkpoint."""

    lines: Sequence[HistoryLine]

    @property
    def text(self) -> str:
        """What the file holds."""
        return "".join(line.model_dump_json() + "\n" for line in self.lines)

    def __call__(self, path: Path) -> None:
        """Write the history."""
        with atomic_file(path) as temporary:
            temporary.write_text(self.text, encoding="utf-8")


@dataclass(frozen=True)
class Keep:
    """Copy a chosen model to its place and write its card."""

    model: ModelRef
    is_start: bool
    card: str

    def __call__(self, path: Path) -> None:
        """Write the model folder."""
        with atomic_folder(path) as temporary:
            if self.is_start:
                self.model.load().save(temporary)
            else:
                shutil.copytree(
                    self.model.source,
                    temporary,
                    dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns(training_record(path).name),
                )
            (temporary / "README.md").write_text(self.card, encoding="utf-8")
