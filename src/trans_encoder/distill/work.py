"""What each stage does: preparing, labelling, training.

Each is a small immutable object that is called with the path of its result. It holds paths and references, no models,
so that it can be sent to another process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from trans_encoder.config import RunConfig
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
from trans_encoder.distill.team import Member, Team, embedders_of, merge_of, views_of
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
    Layout,
    TrainingRecord,
    save_trained,
    scratch,
    tracked,
)
from trans_encoder.teachers import ModelRef, Teacher, Vote, kept_in


@dataclass(frozen=True)
class Cycle:
    """What all stages of a cycle share: settings, references and places."""

    number: int
    layout: Layout
    config: RunConfig
    judge: Judge | None = None
    frozen: tuple[Vote, ...] = ()
    """Frozen teachers: they label in every cycle and are never trained."""
    judging: tuple[Vote, ...] = ()
    """Those of them that have scored the pairs which the judge keeps to itself."""
    starts: Team = ()
    """The members as they began."""
    pairs_from: int = 1
    """The cycle whose pairs this one learns from."""

    @property
    def pairs(self) -> Path:
        """The pairs that the cycle learns from."""
        return self.layout.pairs(self.pairs_from)

    @property
    def start_labels(self) -> Path:
        """The starts' own labels of these pairs."""
        return self.layout.start_labels(self.pairs_from)

    def embeddings(self, model: ModelRef) -> Path:
        """Return a model's embeddings of the sentences of these pairs."""
        return self.layout.embeddings(model.name, self.pairs_from)

    @property
    def embedders(self) -> list[ModelRef]:
        """The bi-encoders whose embeddings students learn from, each once."""
        return list(dict.fromkeys(each for member in self.starts for each in self.embedders_of(member)))

    def embedders_of(self, member: Member) -> list[ModelRef]:
        """Return the bi-encoders whose embeddings a member's students learn from."""
        return embedders_of(member, self.starts, self.frozen) if self.config.in_batch else []


@dataclass(frozen=True)
class Label:
    """Label the pairs with the mean of the teachers, anchored to the start's labels if asked (section 2.4)."""

    cycle: Cycle
    teachers: tuple[ModelRef, ...]
    """The members' encoders."""
    by_starts: bool = False
    """Whether these are the members' first bi-encoders, whose labels are what later ones are anchored to."""

    def __call__(self, path: Path) -> None:
        """Put the shards together, making those that are missing, and write the labels."""
        if not is_first_rank():
            return
        labels = self._put_together(scratch(path))
        if self.is_anchored:
            start = PseudoLabels.open(self.cycle.start_labels, pairs=labels.pairs)
            labels = anchored(labels, start, weight=float(self.cycle.config.anchor or 0))
        labels.save(path)

    @property
    def is_anchored(self) -> bool:
        """Whether the start's labels are mixed in."""
        return bool(self.cycle.config.anchor) and not self.by_starts

    @property
    def embedded(self) -> list[ModelRef]:
        """The encoders that have embedded the sentences of the pairs already."""
        encoders = (*self.teachers, *(vote.teacher for vote in self.cycle.frozen))
        return [model for model in self.cycle.embedders if model in encoders and not model.passes]

    def shards(self) -> list[LabelShard]:
        """Return the shards that can be labelled side by side."""
        pairs, cycle = self.cycle.pairs, self.cycle.number
        count = len(PairSet.open(pairs))
        return [shard for each in self._sharded() for shard in cut(pairs, each, count=count, cycle=cycle)]

    def _sharded(self) -> list[ModelRef]:
        """Return the encoders that score every pair now: members, and frozen ones that have not done so yet."""
        encoders: list[Teacher] = [*self.teachers]
        if self.by_starts and self.cycle.pairs_from == 1:
            encoders += [vote.teacher for vote in self.cycle.frozen if vote.ask == 1]
        return [each for each in encoders if isinstance(each, ModelRef) and each not in self.embedded]

    def _put_together(self, folder: Path) -> PseudoLabels:
        cycle, shards = self.cycle, self.shards()
        votes = [Vote(self._stored(each, shards, folder)) for each in self.teachers]
        for vote in cycle.frozen:
            if self.by_starts:
                votes.append(replace(vote, teacher=self._stored(vote.teacher, shards, folder)))
            else:
                votes.append(replace(vote, teacher=Known(vote.teacher, cycle.start_labels), ask=1.0))
        try:
            labels = label(PairSet.open(cycle.pairs), votes, cycle=cycle.number, scale=cycle.config.scale or "none")
        except DataError as error:
            raise RunError(f"cycle {cycle.number}, labels of the {self.teachers[0].kind}-encoders: {error}") from error
        names = {"frozen": [vote.teacher.name for vote in cycle.frozen]} if cycle.frozen else {}
        return replace(labels, provenance={**labels.provenance, **names})

    def _stored(self, teacher: Teacher, shards: list[LabelShard], folder: Path) -> Teacher:
        """Return what gives a teacher's scores: embeddings, shards, or the teacher itself and earlier labels."""
        if isinstance(teacher, ModelRef) and teacher in self.embedded:
            return Cosines(teacher, self.cycle.embeddings(teacher))
        mine = tuple(shard for shard in shards if shard.teacher == teacher)
        if mine:
            return Sharded(teacher, mine, folder)
        layout = self.cycle.layout
        return Cached(
            kept_in(folder, teacher), tuple(layout.start_labels(before) for before in range(1, self.cycle.pairs_from))
        )


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
        if pooled_like:
            like = cast(BiEncoder, pooled_like[0].load())
            return BiEncoder.from_body(Path(model.source), like=like, trust_remote_code=model.trust_remote_code)
        return model.load(seed=self.seed)

    def load_start(self) -> Encoder:
        """Load what the student is merged with: the first bi-encoder, or the re-ranker that it began as."""
        return (self.member.start if self.kind == "bi" else self.member.plm).load(seed=self.seed)


@dataclass(frozen=True)
class Train:
    """Train a student on labels and keep its best checkpoint."""

    cycle: Cycle
    student: Student
    labels: Path
    teachers: tuple[ModelRef, ...]
    """The members' encoders that made the labels."""
    made_from: str = ""
    """The stage's identity: the checkpoints of another training are not continued."""

    def __call__(self, path: Path) -> None:
        """Write the trained model and how its training went."""
        cycle, member, kind = self.cycle, self.student.member, self.student.kind
        config, judge, cross = cycle.config, cycle.judge, kind == "cross"
        labels = PseudoLabels.open(self.labels, pairs=PairSet.open(cycle.pairs))
        plan = config.plan(kind, member.name)
        options = TrainingOptions(
            folder=scratch(path),
            seed=self.student.seed,
            judge=judge,
            keep_last=judge is not None and not judge.has_labels,
            precision=config.precision,
            trackers=config.trackers,
            description=f"cycle {cycle.number}, {kind}-encoder of {member.name}",
            made_from=self.made_from,
        )
        try:
            targets = self._targets(labels)
            student = self._calibrated(self.student.load(), targets)
            learnt = with_hard_pairs(targets.labelled, share=config.hard_pairs if cross else 0.0, seed=options.seed)
            with tracked(config.trackers, cycle.layout.logs(cycle.number, member.name, kind)):
                training = train(
                    student,
                    learnt,
                    plan=plan,
                    options=options,
                    both_orders=config.both_orders and cross,
                    in_batch=self._in_batch(labels.pairs),
                )
            # A head drawn at random has no start to be merged with.
            merge = 1.0 if isinstance(student, CrossEncoder) and student.head_is_new else merge_of(config, kind)
            if merge < 1:
                start = self._calibrated(self.student.load_start(), targets)
                merge_into(cast(BiEncoder, training.encoder), cast(BiEncoder, start), share=merge)
                # Score the merged weights: they are the ones saved.
                training = replace(training, best_score=judge(training.encoder) if judge else None)
            agreement = self._agreement(training.encoder, anchor=labels.provenance.get("anchor", 0.0))
            evidence = judge.weigh(training.encoder, member.given, self._views()) if judge and not cross else None
            flips = flip_accuracy(training.encoder)
        except DataError as error:
            raise RunError(f"{options.description}: {error}") from error
        record = TrainingRecord(
            cycle=cycle.number,
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

    @property
    def embedded(self) -> list[ModelRef]:
        """The encoders whose cosines of every two sentences of a batch a bi-encoder learns."""
        return self.cycle.embedders_of(self.student.member) if self.student.kind == "bi" else []

    def _in_batch(self, pairs: PairSet) -> InBatch | None:
        if not self.embedded:
            return None
        embeddings = [np.load(self.cycle.embeddings(model), mmap_mode="r") for model in self.embedded]
        weights = {vote.teacher.name: vote.weight for vote in self.cycle.frozen}
        shares = [weights.get(model.name, 1.0) for model in self.embedded]
        weight = self.cycle.config.in_batch or 0.0
        return InBatch(pairs.distinct().sentences, embeddings, weight=weight, shares=shares)

    def _calibrated(self, encoder: Encoder, targets: PseudoLabels) -> Encoder:
        """Bring the head that a cross-encoder begins with to the scale of its labels."""
        if self.cycle.config.calibrate and isinstance(encoder, CrossEncoder) and not encoder.head_is_new:
            calibrate_to(encoder, targets.labelled)
        return encoder

    def _targets(self, labels: PseudoLabels) -> PseudoLabels:
        """Return what the student learns: labels on its own scale, of the pairs that the teachers agree on."""
        if self.cycle.config.scale != "none" and self.student.kind == "bi":
            # Labels of the same pairs with the score of the member's start: the scale that its bi-encoders keep.
            start = PseudoLabels.open(self.cycle.start_labels, pairs=labels.pairs)
            labels = on_scale_of(labels, start.by_teacher[self.student.member.name])
        return agreed(labels, share=self.cycle.config.keep_agreed)

    def _agreement(self, encoder: Encoder, *, anchor: float) -> float | None:
        if self.cycle.judge is None:
            return None
        starts = tuple(member.start for member in self.cycle.starts)
        teachers, starting = self._consensus(self.teachers), self._consensus(starts)
        return self.cycle.judge.agreement(encoder, teachers, starts=starting, anchor=anchor)

    def _consensus(self, models: tuple[ModelRef, ...]) -> Sequence[Teacher]:
        """Return what stands for the labels of these models: the models, or one scorer where there is more to it."""
        scale, judging = self.cycle.config.scale or "none", self.cycle.judging
        if not judging and scale == "none":
            return models
        frozen = (replace(vote, teacher=Known(vote.teacher, self.cycle.layout.held_out)) for vote in judging)
        return [Consensus((*map(Vote, models), *frozen), scale)]

    def _views(self) -> tuple[Teacher, ...]:
        """Return who judges a bi-encoder without labels; frozen teachers have scored the held-out pairs already."""
        known = {vote.teacher.name: Known(vote.teacher, self.cycle.layout.held_out) for vote in self.cycle.judging}
        views = views_of(self.student.member, self.cycle.starts, self.cycle.frozen)
        return tuple(known.get(view.name, view) for view in views)


@dataclass(frozen=True)
class WriteText:
    """Write a text."""

    text: str

    def __call__(self, path: Path) -> None:
        """Write it."""
        with atomic_file(path) as temporary:
            temporary.write_text(self.text, encoding="utf-8")
