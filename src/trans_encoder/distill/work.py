"""The work of each stage: labelling, training, and putting a chosen model in its place.

Each is a small immutable object that is called with the path of its result. It holds paths and references, no models,
so that it can be sent to another process.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, cast

from trans_encoder.config import TrainingPlan
from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.judges import Judge
from trans_encoder.distill.labels import PseudoLabels, anchored, label
from trans_encoder.distill.shards import LabelShard, Sharded, cut
from trans_encoder.distill.team import Member, ModelRef
from trans_encoder.encoders import BiEncoder, Encoder, Kind
from trans_encoder.encoders.lengths import count_cuts
from trans_encoder.encoders.training import TrainingOptions, train
from trans_encoder.errors import DataError, RunError
from trans_encoder.files import atomic_file, atomic_folder, sha256, write_json
from trans_encoder.ranks import is_first_rank
from trans_encoder.runs.stages import scratch
from trans_encoder.runs.trackers import tracked

TRAINING = "training.json"
"""Beside the weights of every trained model: how the training went."""


@dataclass(frozen=True)
class SavePairs:
    """Put the training pairs into the run folder."""

    pairs: PairSet

    def __call__(self, path: Path) -> None:
        """Write the pairs."""
        self.pairs.save(path)


@dataclass(frozen=True)
class JudgeStarts:
    """Score the members' first bi-encoders."""

    starts: tuple[ModelRef, ...]
    judge: Judge | None

    def __call__(self, path: Path) -> None:
        """Write each start's score, or null without a judge."""
        starts = {start.name: {"source": start.source, "score": self._score(start)} for start in self.starts}
        if is_first_rank():
            write_json(path, starts)

    def _score(self, start: ModelRef) -> float | None:
        try:
            return self.judge(start) if self.judge else None
        except DataError as error:
            raise RunError(f"start of {start.name}: {error}") from error


@dataclass(frozen=True)
class Label:
    """Label the pairs with the mean of the teachers, anchored to the start's labels if asked (section 2.4)."""

    pairs: Path
    teachers: tuple[ModelRef, ...]
    cycle: int
    anchor: "Anchor | None" = None

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
        return [shard for each in self.teachers for shard in cut(self.pairs, each, count=count, cycle=self.cycle)]

    def _put_together(self, folder: Path) -> PseudoLabels:
        shards, pairs = self.shards(), PairSet.open(self.pairs)
        teachers = [
            Sharded(each, tuple(shard for shard in shards if shard.teacher == each), folder) for each in self.teachers
        ]
        try:
            return label(pairs, teachers, cycle=self.cycle)
        except DataError as error:
            raise RunError(f"cycle {self.cycle}, labels of the {self.teachers[0].kind}-encoders: {error}") from error


@dataclass(frozen=True)
class Anchor:
    """The start's labels of the same pairs, and their weight."""

    labels: Path
    weight: float


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
            made_from=self._made_from(),
        )
        try:
            with tracked(self.trackers, self.logs):
                training = train(
                    self.student.load(), labels.labelled, plan=self.plan, options=options, both_orders=self.both_orders
                )
            agreement = self._agreement(training.encoder, anchor=labels.provenance.get("anchor", 0.0))
        except DataError as error:
            raise RunError(f"{description}: {error}") from error
        if not is_first_rank():
            return
        with atomic_folder(path) as temporary:
            training.encoder.save(temporary)
            record = {
                "cycle": self.cycle,
                "member": name,
                "kind": kind,
                "seed": self.student.seed,
                "labels": len(labels),
                "cuts": training.cuts.to_dict() if training.cuts else None,
                "own_cuts": count_cuts(training.encoder, labels.pairs).to_dict(),
                "outside": labels.outside_unit if self.plan.loss == "bce" else 0,
                "negatives": self.plan.negatives,
                "best_step": training.best_step,
                "best_score": training.best_score,
                "agreement": agreement,
                "history": [asdict(moment) for moment in training.history],
            }
            write_json(temporary / TRAINING, record)

    def _agreement(self, encoder: Encoder, *, anchor: float) -> float | None:
        if self.judge is None:
            return None
        return self.judge.agreement(encoder, self.teachers, starts=self.starts, anchor=anchor)

    def _made_from(self) -> str:
        """Return a hash of what decides the training: a checkpoint of another one must not be continued."""
        parts = {
            "labels": sha256(self.labels),
            "student": [model.fingerprint() for model in self.student.weights()],
            "plan": self.plan.model_dump(mode="json"),
            "seed": self.student.seed,
            "both_orders": self.both_orders,
            "judge": self.judge.fingerprint if self.judge else None,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class WriteHistory:
    """Write one JSON line for each judged moment."""

    moments: Sequence[Mapping[str, object]]

    @property
    def text(self) -> str:
        """What the file holds."""
        return "".join(json.dumps(moment, ensure_ascii=False) + "\n" for moment in self.moments)

    def __call__(self, path: Path) -> None:
        """Write the history."""
        with atomic_file(path) as temporary:
            temporary.write_text(self.text, encoding="utf-8")


@dataclass(frozen=True)
class Keep:
    """Put a chosen model with its card in its place."""

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
                    self.model.source, temporary, dirs_exist_ok=True, ignore=shutil.ignore_patterns(TRAINING)
                )
            (temporary / "README.md").write_text(self.card, encoding="utf-8")
