"""What a run would do and how long it would take, measured on a few batches of its own models and pairs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import cast

import numpy as np

from trans_encoder.config import FUNCTION, RunConfig, TrainingPlan
from trans_encoder.data import PairSet, TestSet, Text, check_varied
from trans_encoder.distill.judges import DevJudge, choose_judge, harm_notes
from trans_encoder.distill.team import Member, assemble, assemble_teachers, resolve_members
from trans_encoder.encoders import BiEncoder, Cuts, Encoder, Kind, TrainingOptions, count_cuts, fitting_length, train
from trans_encoder.mining import Mix, mine
from trans_encoder.runs import check_trackers
from trans_encoder.teachers import ModelRef, Vote

_SCORED_PAIRS = 256
_MINED_SENTENCES = 1000
_FEW_STEPS, _MORE_STEPS = 1, 4
SHORT: Mapping[Kind, int] = {"bi": 32, "cross": 64}
"""The paper's lengths, which longer ones are compared with."""


@dataclass(frozen=True)
class PlannedStage:
    """One kind of work that a run does for one member, once a cycle."""

    member: str
    name: str
    pairs: int
    """Pairs that are looked at, each time counted."""
    steps: int
    """Optimiser steps; 0 for labelling."""
    seconds: float
    """Estimated time in one cycle."""
    cycles: int
    """In how many cycles it is done."""
    first: int = 1
    """The first of these."""


@dataclass(frozen=True)
class PlannedLength:
    """The length that a member's encoders of one kind learn at, and what a shorter one would cost instead."""

    member: str
    cuts: Cuts
    """What is cut in training, and to which length."""
    own_cuts: Cuts
    """What the model cuts wherever it scores."""
    seconds: float
    """Estimated time of one training."""
    shorter_cuts: Cuts
    """What would be cut in training at the shorter length."""
    shorter_seconds: float
    """Estimated time of one training at the shorter length."""

    def __str__(self) -> str:
        shorter, saved = self.shorter_cuts, ""
        if self.shorter_seconds < self.seconds:  # times are measured, so on a busy machine they may say otherwise
            saved = f", and a training would take {self.shorter_seconds:.0f} s instead of {self.seconds:.0f} s"
        return (
            f"{self.member}, {self.cuts.kind}-encoder: trained on up to {self.cuts.max_tokens:,} tokens: {self.cuts}. "
            f"With {shorter.max_tokens:,} tokens, {shorter.cut:,} would be cut{saved}. "
            f"The model itself takes {self.own_cuts.max_tokens:,} tokens: {self.own_cuts}"
        )


@dataclass(frozen=True)
class Plan:
    """What a run would do."""

    config: RunConfig
    """As resolved, with the PLM of each member."""
    notes: tuple[str, ...]
    stages: tuple[PlannedStage, ...]
    lengths: tuple[PlannedLength, ...] = ()

    @property
    def seconds(self) -> float:
        """Estimated time of all cycles, the first of which may have a share of the pairs only."""
        config = self.config
        left_out = 1 - config.first_share if config.cycles > 1 else 0.0
        every_cycle = sum(stage.seconds for stage in self.stages if stage.cycles == config.cycles)
        return sum(stage.cycles * stage.seconds for stage in self.stages) - left_out * every_cycle


def plan_run(
    config: RunConfig,
    pairs: PairSet,
    *,
    dev: TestSet | None = None,
    remined: Text | None = None,
    mix: Mix | None = None,
) -> Plan:
    """Load every model, measure it on a few batches and extrapolate; nothing of it is kept.

    `remined` is the text from which every cycle after the first mines its pairs again, in this mix.
    """
    check_trackers(config.trackers)
    check_varied(pairs)
    resolved, notes = resolve_members(config)
    if remined is not None:
        resolved = resolved.model_copy(update={"first_share": 1.0})
    pairs, _, judge = choose_judge(resolved, pairs, DevJudge(dev) if dev else None)
    team, judged_count = assemble(resolved), len(judge.pairs) if judge else 0
    planned = [
        part
        for member in team
        for part in (
            *_mining(member, resolved, pairs, text=remined, mix=mix),
            *_stages(member, resolved, pairs, judged_count),
        )
    ]
    known = tuple(each for each in resolved.teachers if not each.spec.startswith(FUNCTION))
    votes = assemble_teachers(resolved.model_copy(update={"teachers": known}), team)
    planned += _teaching(votes, pairs, cycles=1 if remined is None else resolved.cycles)
    return Plan(
        config=resolved,
        notes=(*notes, *harm_notes(team, judge, votes)),
        stages=tuple(part for part in planned if isinstance(part, PlannedStage)),
        lengths=tuple(part for part in planned if isinstance(part, PlannedLength)),
    )


def _teaching(votes: Sequence[Vote], pairs: PairSet, *, cycles: int) -> Iterator[PlannedStage]:
    """Plan the labelling by frozen encoders, once for a pair; others are fast, or cannot be called for a trial."""
    for vote in votes:
        if isinstance(vote.teacher, ModelRef):
            asked, orders = round(vote.ask * len(pairs)), 2 if vote.teacher.both_orders else 1
            seconds = _seconds_per_score(vote.teacher.load(), pairs) * asked * orders * max(vote.teacher.passes, 1)
            yield PlannedStage(vote.teacher.name, "label as a teacher", asked, 0, seconds, cycles)


def _mining(
    member: Member, config: RunConfig, pairs: PairSet, *, text: Text | None, mix: Mix | None
) -> Iterator[PlannedStage]:
    """Plan what comes before the labels in every cycle but the first, if pairs are mined again."""
    if text is None or config.cycles == 1:
        return
    encoder = cast(BiEncoder, member.start.load())
    share, sample = math.ceil(len(pairs) / len(config.members)), text.sample(min(len(text), _MINED_SENTENCES), seed=0)
    begun = perf_counter()
    mine(sample, pairs=math.ceil(share * len(sample) / len(text)), encoder=encoder, mix=mix)
    seconds = (perf_counter() - begun) * len(text) / len(sample)
    yield PlannedStage(member.name, "mine pairs again", share, 0, seconds, config.cycles - 1, first=2)
    if config.anchor:
        seconds = _seconds_per_score(encoder, pairs) * len(pairs)
        yield PlannedStage(member.name, "label them with the start", len(pairs), 0, seconds, config.cycles - 1, first=2)


def _stages(
    member: Member, config: RunConfig, pairs: PairSet, judged_count: int
) -> Iterator[PlannedStage | PlannedLength]:
    for kind in config.kinds:
        encoder = (member.start if kind == "bi" else member.plm).load(seed=config.seed)
        plan, both = (config.bi, False) if kind == "bi" else (config.cross, config.both_orders)
        per_score = _seconds_per_score(encoder, pairs)
        labelling = f"label with the {kind}-encoder"
        seconds = per_score * len(pairs) * max(config.passes, 1)
        yield PlannedStage(member.name, labelling, len(pairs), 0, seconds, config.cycles)
        steps = plan.epochs * math.ceil(len(pairs) * (2 if both else 1) / plan.batch_size)
        judgements = steps // plan.dev_steps + plan.epochs
        length = _length(member, encoder, pairs, plan=plan, steps=steps)
        training = f"train the {kind}-encoder"
        seconds = length.seconds + judgements * judged_count * per_score
        yield PlannedStage(member.name, training, steps * plan.batch_size, steps, seconds, config.cycles)
        yield length


def _length(member: Member, encoder: Encoder, pairs: PairSet, *, plan: TrainingPlan, steps: int) -> PlannedLength:
    """Time trainings at the planned length and at a shorter one: the paper's if that is shorter, else half of it."""
    own = count_cuts(encoder, pairs)
    chosen = plan.given_tokens or fitting_length(encoder, pairs)
    short = SHORT[encoder.kind] if SHORT[encoder.kind] < chosen else max(chosen // 2, 4)
    both = [
        (
            count_cuts(encoder, pairs, max_tokens=length),
            steps * _seconds_per_step(encoder, pairs, plan.model_copy(update={"max_tokens": length})),
        )
        for length in (chosen, short)
    ]
    (cuts, seconds), (shorter_cuts, shorter_seconds) = both
    return PlannedLength(member.name, cuts, own, seconds, shorter_cuts, shorter_seconds)


def _seconds_per_score(encoder: Encoder, pairs: PairSet) -> float:
    sample = _repeated(pairs, _SCORED_PAIRS)
    encoder.score(sample.take(range(64)))  # the first call pays for everything that is set up once
    begun = perf_counter()
    encoder.score(sample)
    return (perf_counter() - begun) / len(sample)


def _seconds_per_step(encoder: Encoder, pairs: PairSet, plan: TrainingPlan) -> float:
    """Time a short and a slightly longer training; their difference is free of what is set up once."""
    few, more = (_training_seconds(encoder, pairs, plan, steps=steps) for steps in (_FEW_STEPS, _MORE_STEPS))
    return max(more - few, 0.0) / (_MORE_STEPS - _FEW_STEPS)


def _training_seconds(encoder: Encoder, pairs: PairSet, plan: TrainingPlan, *, steps: int) -> float:
    sample = _repeated(pairs, steps * plan.batch_size)
    labelled = sample.with_scores(np.linspace(0, 1, len(sample)))
    once = plan.model_copy(update={"epochs": 1})
    with TemporaryDirectory(prefix="trans-encoder-check-") as folder:
        begun = perf_counter()
        train(encoder, labelled, plan=once, options=TrainingOptions(folder=Path(folder), description="measuring"))
        return perf_counter() - begun


def _repeated(pairs: PairSet, count: int) -> PairSet:
    """Return this many pairs spread evenly over the set, some more than once if it is small."""
    return pairs.take(np.linspace(0, len(pairs) - 1, count).round().astype(np.int64))
