"""What each stage does: preparing, labelling, training.

Each is a small immutable object that is called with the path of its result. It holds paths and references, no models,
so that it can be sent to another process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np

from trans_encoder.config import RunConfig, Scale
from trans_encoder.data import PairSet
from trans_encoder.distill.judges import Judge
from trans_encoder.distill.labels import (
    Cached,
    Consensus,
    Cosines,
    Known,
    LabelShard,
    PseudoLabels,
    Sharded,
    agreed,
    anchored,
    cut,
    label,
    on_scale_of,
    with_hard_pairs,
)
from trans_encoder.distill.team import Member, merge_of
from trans_encoder.encoders import (
    BiEncoder,
    CrossEncoder,
    Encoder,
    InBatch,
    Kind,
    TrainingOptions,
    calibrate_to,
    count_cuts,
    merge_into,
    train,
)
from trans_encoder.errors import DataError, RunError
from trans_encoder.evaluation.probe import flip_accuracy
from trans_encoder.files import atomic_file
from trans_encoder.ranks import is_first_rank
from trans_encoder.runs import (
    HistoryLine,
    TrainingRecord,
    save_trained,
    scratch,
    tracked,
)
from trans_encoder.teachers import Asked, ModelRef, Teacher, Vote


@dataclass(frozen=True)
class Label:
    """Label the pairs with the mean of the teachers, anchored to the start's labels if asked (section 2.4)."""

    pairs: Path
    teachers: tuple[ModelRef, ...]
    """The members' encoders."""
    cycle: int
    anchor: "Anchor | None" = None
    frozen: tuple[Vote, ...] = ()
    """The frozen teachers."""
    scale: Scale = "none"
    known: Path | None = None
    """Labels of the same pairs that hold the frozen teachers' scores already."""
    earlier: tuple[Path, ...] = ()
    """Labels of other pairs, some of which may be among these; no teacher is asked twice about a pair."""
    embedded: Mapping[ModelRef, Path] = field(default_factory=dict)
    """Where the pairs' sentences are embedded already, for the bi-encoders that have done so."""

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
        encoders: list[Teacher] = [*self.teachers]
        if self.known is None and not self.earlier:
            encoders += [vote.teacher for vote in self.frozen if vote.ask == 1]
        return [each for each in encoders if isinstance(each, ModelRef) and each not in self.embedded]

    def _put_together(self, folder: Path) -> PseudoLabels:
        shards = self.shards()
        sharded = {
            each: Sharded(each, tuple(shard for shard in shards if shard.teacher == each), folder)
            for each in self._sharded()
        }

        def source(teacher: Teacher, known: Path | None = None) -> Teacher:
            """Return where a teacher's scores come from: labels, embeddings, shards, or the teacher itself."""
            if known is not None:
                return Known(teacher, known)
            if isinstance(teacher, ModelRef) and teacher in self.embedded:
                return Cosines(teacher, self.embedded[teacher])
            if isinstance(teacher, ModelRef) and teacher in sharded:
                return sharded[teacher]
            if teacher.kind == "function" and not getattr(teacher, "needs_all_pairs", False):
                teacher = Asked(teacher, folder / f"{teacher.name}.jsonl")
            return Cached(teacher, self.earlier)

        members = [Vote(source(each)) for each in self.teachers]
        frozen = [
            replace(vote, teacher=source(vote.teacher, self.known), ask=1.0 if self.known else vote.ask)
            for vote in self.frozen
        ]
        try:
            labels = label(PairSet.open(self.pairs), [*members, *frozen], cycle=self.cycle, scale=self.scale)
        except DataError as error:
            raise RunError(f"cycle {self.cycle}, labels of the {self.teachers[0].kind}-encoders: {error}") from error
        names = {"frozen": [vote.teacher.name for vote in self.frozen]} if self.frozen else {}
        return replace(labels, provenance={**labels.provenance, **names})


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
        """Return the targets for every two sentences."""
        embeddings = [np.load(file, mmap_mode="r") for file in self.files]
        return InBatch(pairs.distinct().sentences, embeddings, weight=self.weight, shares=self.shares)


@dataclass(frozen=True)
class Student:
    """A member's student of one stage and where its weights come from (sections 2.2 and 2.3)."""

    member: Member
    kind: Kind
    config: RunConfig
    seed: int

    def weights(self) -> list[ModelRef]:
        """Return the models that it is made from; the first gives the weights, a second the pooling."""
        member, refresh = self.member, self.config.strategy != "sequential"
        if self.kind == "cross":
            return [member.plm if refresh else member.plm.at(member.bi.source)]
        if refresh:
            return [member.start]
        return [member.teacher("cross"), member.start] if self.config.formulation == "alternate" else [member.bi]

    def load(self) -> Encoder:
        """Load the student with the weights that it starts from."""
        model, *pooled_like = self.weights()
        if self.kind == "cross":
            return model.load_cross(seed=self.seed)
        if pooled_like:
            like = cast(BiEncoder, pooled_like[0].load())
            return BiEncoder.from_body(Path(model.source), like=like, trust_remote_code=model.trust_remote_code)
        return model.load()

    def load_start(self) -> Encoder:
        """Load what the student is merged with: the first bi-encoder, or the re-ranker that it began as."""
        return self.member.start.load() if self.kind == "bi" else self.member.plm.load_cross(seed=self.seed)


@dataclass(frozen=True)
class Train:
    """Train a student on labels and keep its best checkpoint."""

    student: Student
    cycle: int
    pairs: Path
    labels: Path
    start_labels: Path
    """Labels of the same pairs with the score of the member's start: the scale that its bi-encoders keep."""
    teachers: tuple[ModelRef, ...]
    """The members' encoders that made the labels."""
    frozen: tuple[Vote, ...]
    """The frozen teachers that had a part in them, too."""
    starts: tuple[ModelRef, ...]
    """Who had a part in them if they are anchored."""
    judge: Judge | None
    views: tuple[Teacher, ...]
    """Who judges a bi-encoder without labels."""
    in_batch: Embedded | None
    """What a bi-encoder's other cosines of a batch should be."""
    logs: Path
    """Where the trackers write."""
    made_from: str
    """The stage's identity: the checkpoints of another training are not continued."""

    def __call__(self, path: Path) -> None:
        """Write the trained model and how its training went."""
        config, member, kind = self.student.config, self.student.member, self.student.kind
        labels = PseudoLabels.open(self.labels, pairs=PairSet.open(self.pairs))
        plan, cross = config.plan(kind, member.name), kind == "cross"
        options = TrainingOptions(
            folder=scratch(path),
            seed=self.student.seed,
            judge=self.judge,
            keep_last=self.judge is not None and not self.judge.has_labels,
            precision=config.precision,
            trackers=config.trackers,
            description=f"cycle {self.cycle}, {kind}-encoder of {member.name}",
            made_from=self.made_from,
        )
        try:
            targets = self._targets(labels)
            student = self._calibrated(self.student.load(), targets)
            learnt = with_hard_pairs(targets.labelled, share=config.hard_pairs if cross else 0.0, seed=options.seed)
            with tracked(config.trackers, self.logs):
                training = train(
                    student,
                    learnt,
                    plan=plan,
                    options=options,
                    both_orders=config.both_orders and cross,
                    in_batch=self.in_batch.targets(labels.pairs) if self.in_batch else None,
                )
            # A head drawn at random has no start to be merged with.
            merge = 1.0 if isinstance(student, CrossEncoder) and student.head_is_new else merge_of(config, kind)
            if merge < 1:
                start = self._calibrated(self.student.load_start(), targets)
                merge_into(cast(BiEncoder, training.encoder), cast(BiEncoder, start), share=merge)
                # Score the merged weights: they are the ones saved.
                training = replace(training, best_score=self.judge(training.encoder) if self.judge else None)
            agreement = self._agreement(training.encoder, anchor=labels.provenance.get("anchor", 0.0))
            evidence = None
            if self.judge is not None and kind == "bi":
                evidence = self.judge.weigh(training.encoder, member.given, self.views)
            flips = flip_accuracy(training.encoder)
        except DataError as error:
            raise RunError(f"{options.description}: {error}") from error
        record = TrainingRecord(
            cycle=self.cycle,
            member=member.name,
            kind=kind,
            seed=options.seed,
            labels=len(targets),
            hard=len(learnt) - len(targets),
            cuts=training.cuts,
            own_cuts=count_cuts(training.encoder, targets.pairs),
            outside=targets.outside_unit if plan.loss == "bce" else 0,
            negatives=plan.negatives,
            merged=merge,
            best_step=training.best_step,
            best_score=training.best_score,
            agreement=agreement,
            evidence=evidence,
            flips=flips,
            history=tuple(training.history),
        )
        save_trained(path, training.encoder, record)

    def _calibrated(self, encoder: Encoder, targets: PseudoLabels) -> Encoder:
        """Bring the head that a cross-encoder begins with to the scale of its labels."""
        if self.student.config.calibrate and isinstance(encoder, CrossEncoder) and not encoder.head_is_new:
            calibrate_to(encoder, targets.labelled)
        return encoder

    def _targets(self, labels: PseudoLabels) -> PseudoLabels:
        """Return what the student learns: labels on its own scale, of the pairs that the teachers agree on."""
        if self.student.config.scale != "none" and self.student.kind == "bi":
            start = PseudoLabels.open(self.start_labels, pairs=labels.pairs)
            labels = on_scale_of(labels, start.by_teacher[self.student.member.name])
        return agreed(labels, share=self.student.config.keep_agreed)

    def _agreement(self, encoder: Encoder, *, anchor: float) -> float | None:
        if self.judge is None:
            return None
        teachers, starts = self._consensus(self.teachers), self._consensus(self.starts)
        return self.judge.agreement(encoder, teachers, starts=starts, anchor=anchor)

    def _consensus(self, models: tuple[ModelRef, ...]) -> Sequence[Teacher]:
        """Return what stands for the labels of these models: the models, or one scorer where there is more to it."""
        scale = self.student.config.scale or "none"
        if not self.frozen and scale == "none":
            return models
        return [Consensus((*map(Vote, models), *self.frozen), scale)]


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
