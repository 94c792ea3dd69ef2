"""The end of a run: choose among the cycles, save the chosen models, and report whether it helped."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from trans_encoder.data import PairSet
from trans_encoder.distill.cards import Facts, write_card
from trans_encoder.distill.cycle import CycleStages
from trans_encoder.distill.judges import Comparison, Judge, can_judge
from trans_encoder.distill.selection import LEARNT, Candidate, Verdict, choose, choose_by_views, idle_cycles, verdict_of
from trans_encoder.distill.team import Member, Team, knows_labels
from trans_encoder.encoders import KNOWN, Kind
from trans_encoder.files import atomic_folder
from trans_encoder.ranks import is_first_rank
from trans_encoder.runs import (
    Chosen,
    Layout,
    MemberResult,
    ResultRecord,
    Stage,
    StartRecord,
    TrainingRecord,
    identity,
    read_record,
    training_record,
    write_record,
)
from trans_encoder.teachers import ModelRef


def idle(team: Team, steps: CycleStages, *, cycle: int) -> int:
    """Count the cycles up to this one since any member's encoder was better than all before it, its start included.

    Bi-encoders whose harm the judge cannot see do not count; if there are no others, no cycle counts as idle.
    """
    return min(
        (
            idle_cycles(_candidates(member, kind, layout=steps.layout, cycles=cycle))
            for member in team
            for kind in steps.config.kinds
            if kind == "cross" or can_judge(member, steps.judge)
        ),
        default=0,
    )


def conclude(team: Team, steps: CycleStages, pairs: PairSet, *, cycles: int, notes: Sequence[str]) -> None:
    """Choose each member's best models (independently for each kind), keep them and write the result."""
    judge = steps.judge
    measure = f"{judge.name} x100 {judge.basis}" if judge else None
    remined = steps.miner is not None
    facts = Facts(
        steps.config,
        pairs_count=len(pairs),
        pairs_hash=pairs.hash,
        measure=measure,
        remined=remined,
        knows_labels=knows_labels(team, steps.frozen),
    )
    layout, kinds = steps.layout, steps.config.kinds
    results: dict[str, MemberResult] = {}
    kept: dict[Kind, list[ModelRef]] = {kind: [] for kind in kinds}
    stages = []
    for member in team:
        chosen: dict[Kind, Chosen] = {}
        for kind in kinds:
            start, *trained = _candidates(member, kind, layout=layout, cycles=cycles)
            if kind == "cross":
                best = choose(trained)
            else:
                best = choose_by_views(start, trained, else_start=not can_judge(member, judge))
            place = layout.best(member.name if len(team) > 1 else None, kind)
            stages.append(_keep(best, start, place=place, steps=steps, facts=facts))
            evidence = (best if best.cycle else trained[-1]).evidence
            verdict = _compare(member, best, start, kind=kind, judge=judge)
            helped = (verdict_of(evidence) if evidence else verdict).helped
            chosen[kind] = Chosen(
                folder=layout.name(place),
                cycle=best.cycle,
                step=best.step,
                score=best.score,
                helped=helped,
                agreement=best.agreement,
                evidence=evidence,
                flips=best.flips,
                merged=best.merged,
            )
            kept[kind].append(best.model.at(place, pooling=None, max_tokens=None))
        results[member.name] = MemberResult(
            source=member.given.source,
            start_score=start.score,
            bi=chosen["bi"],
            cross=chosen.get("cross"),
            start_flips=start.flips,
        )
    steps.folder.complete(stages)
    unseen = [member.name for member in team if not can_judge(member, judge)]
    trainings = [
        training
        for member in team
        for kind in kinds
        for training in _trainings(member, kind, layout=layout, cycles=cycles)
    ]
    work = Conclude(
        results=results,
        starts=tuple(member.given for member in team),
        kept={kind: tuple(models) for kind, models in kept.items()},
        cycles=cycles,
        judge=judge,
        strong=tuple(member.name for member in team if _may_be_strong(member)),
        kept_starts={
            name: layout.name(layout.student(cycles, name, "bi")) for name in unseen if results[name].bi.cycle == 0
        },
        notes=(
            *notes,
            *training_notes(trainings, remined=remined, later=None if steps.later is None else len(steps.later)),
            *([] if any(each.bi.evidence for each in results.values()) else _floor(layout, judge)),
        ),
    )
    digests = {stage.name: steps.folder.manifest.digest(stage.name) for stage in stages}
    steps.folder.complete([steps.stage(layout.result, work, best=digests, notes=work.notes)])


def _may_be_strong(member: Member) -> bool:
    """Whether a start may be stronger than shared wording: trained on labels, or one of the released checkpoints."""
    return member.supervised or member.given.source in KNOWN


def _compare(member: Member, best: Candidate, start: Candidate, *, kind: Kind, judge: Judge | None) -> Verdict:
    """Compare a member's kept model with its start."""
    if judge is None:
        return Verdict.NOT_KNOWN
    return judge.compare(Comparison(kind, start.score, best.score, best.agreement, _may_be_strong(member)))


def _candidates(member: Member, kind: Kind, *, layout: Layout, cycles: int) -> list[Candidate]:
    """Return the start and what each cycle made; a cross-encoder has no start and is compared with the bi-encoder's."""
    start = read_record(StartRecord, layout.start).root[member.name]
    found = [Candidate(member.given, cycle=0, step=0, score=start.score, flips=start.flips)]
    for training in _trainings(member, kind, layout=layout, cycles=cycles):
        folder = layout.student(training.cycle, member.name, kind)
        model = (member.start if kind == "bi" else member.plm).at(folder, pooling=None, max_tokens=None)
        merged = None if training.merged == 1 else training.merged
        learnt = training.agreement, training.evidence, training.flips, merged
        found.append(Candidate(model, training.cycle, training.best_step, training.best_score, *learnt))
    return found


def _trainings(member: Member, kind: Kind, *, layout: Layout, cycles: int) -> list[TrainingRecord]:
    places = (layout.student(cycle, member.name, kind) for cycle in range(1, cycles + 1))
    return [read_record(TrainingRecord, training_record(place)) for place in places]


def _keep(best: Candidate, start: Candidate, *, place: Path, steps: CycleStages, facts: Facts) -> Stage:
    trained = training_record(Path(best.model.source))
    lengths = learnt_lengths(read_record(TrainingRecord, trained)) if best.cycle else None
    card = write_card(best, start, facts=facts, lengths=lengths)
    work = Keep(best.model, is_start=best.cycle == 0, card=card)
    return steps.stage(place, work, by="owner", model=steps.digest(best.model), card=identity(card))


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


@dataclass(frozen=True)
class Conclude:
    """Score the ensembles and write the result."""

    results: Mapping[str, MemberResult]
    starts: tuple[ModelRef, ...]
    kept: Mapping[Kind, tuple[ModelRef, ...]]
    cycles: int
    judge: Judge | None
    strong: tuple[str, ...]
    """Members whose starts may be stronger than shared wording."""
    kept_starts: Mapping[str, str]
    """Members whose starts are kept because no student is known to be better, and where the last student is."""
    notes: tuple[str, ...]

    def __call__(self, path: Path) -> None:
        """Write the result."""
        helped: dict[str, bool | None] = {kind: self._verdict(kind).helped for kind in self.kept}
        ensemble = self._ensemble()
        if not is_first_rank():
            return
        result = ResultRecord(
            metric=self.judge.name if self.judge else None,
            cycles=self.cycles,
            members=self.results,
            ensemble=ensemble,
            helped=helped,
            summary=" ".join(self._summary(kind) for kind in self.kept),
            notes=self.notes,
        )
        write_record(path, result)

    def _ensemble(self) -> dict[str, float]:
        if self.judge is None or len(self.starts) == 1:
            return {}
        scores = {"start": self.judge.together(self.starts)}
        return scores | {kind: self.judge.together(models) for kind, models in self.kept.items()}

    def _means(self, kind: Kind) -> tuple[float, float] | None:
        """Return the mean score of the members' starts and of their chosen models."""
        starts = [result.start_score for result in self.results.values()]
        chosen = [each.score for result in self.results.values() if (each := result.chosen(kind))]
        before = [score for score in starts if score is not None]
        after = [score for score in chosen if score is not None]
        return (fmean(before), fmean(after)) if self.judge and before and after else None

    def _agreement(self, kind: Kind) -> float | None:
        """Return how far the chosen cross-encoders have learnt, where nothing tells more of them."""
        chosen = [each.agreement for result in self.results.values() if (each := result.chosen(kind))]
        known = [agreement for agreement in chosen if agreement is not None]
        return fmean(known) if kind == "cross" and known else None

    def _verdict(self, kind: Kind) -> Verdict:
        """Compare the members' means; not known as soon as it is not known of one member."""
        means = self._means(kind)
        if self.judge is None or means is None:
            return Verdict.NOT_KNOWN
        chosen = [each for result in self.results.values() if (each := result.chosen(kind))]
        if any(each.helped is None for each in chosen):
            return Verdict.NOT_KNOWN
        if any(each.evidence for each in chosen):
            return Verdict.BETTER if any(each.helped for each in chosen) else Verdict.NOT_BETTER
        return self.judge.compare(Comparison(kind, *means, self._agreement(kind), bool(self.strong)))

    def _summary(self, kind: Kind) -> str:
        means = self._means(kind)
        name = f"{kind}-encoder" + ("s" if len(self.results) > 1 else "")
        if means is None or self.judge is None:
            return f"Kept the {name} of the last cycle: without a judge it is not known whether it is better."
        before, after = means
        verdict = self._verdict(kind)
        if verdict is Verdict.NOT_KNOWN:
            return self._not_known(kind, name)
        verb = verdict.capitalize()
        if told := self._told(kind):
            kept = "" if verdict is Verdict.BETTER else " The start was kept."
            return f"{verb} {name}: {told}.{kept}"
        if (agreement := self._agreement(kind)) is not None:
            return (
                f"{verb} {name}: agreement with the teachers {agreement:.2f} {self.judge.basis}, "
                f"where {LEARNT:g} tells better from worse."
            )
        if kind == "bi" and all(result.bi.cycle == 0 for result in self.results.values()):
            start = f"the start ({self.judge.name} {before:.2f} {self.judge.basis})"
            return f"It did not help the {name}: {start} was at least as good as every cycle's, and was kept."
        return f"{verb} {name}: {self.judge.name} {after:.2f} {self.judge.basis}, the start {before:.2f}."

    def _told(self, kind: Kind) -> str:
        """Say what views told of each member's student; nothing where none was asked."""
        found = {name: each.evidence for name, result in self.results.items() if (each := result.chosen(kind))}
        return "; ".join(
            (f"{name}: " if len(found) > 1 else "")
            + f"estimated gain {each.gain:+.2f} ({each.low:+.2f} to {each.high:+.2f}) by {', '.join(each.views)} "
            f"on {each.pairs:,} held-out pairs"
            for name, each in found.items()
            if each is not None
        )

    def _not_known(self, kind: Kind, name: str) -> str:
        if kind == "cross":
            either = " either" if self._verdict("bi") is Verdict.NOT_KNOWN else ""
            return f"Whether the {name} is better than the start is not known{either}."
        told = f" ({told})" if (told := self._told(kind)) else ""
        if self.kept_starts:
            return (
                f"Kept the original {name} of {' and '.join(self.kept_starts)}: without labels it is not known whether "
                f"the new one is better{told}. The new one is in {' and '.join(self.kept_starts.values())}; "
                f"--set selection=last puts it in best/."
            )
        if told:
            return f"Not known whether the {name} became better{told}. Kept what has the best label-free score."
        return (
            f"Not known whether the {name} became better: without labels that can be told only of starts that are "
            f"weaker than shared wording. Kept what has the best label-free score; give a dev set to be sure."
        )


def _floor(layout: Layout, judge: Judge | None) -> list[str]:
    """Say how the starts' scores compare with the lexical floor, where that decides what can be told of them."""
    floor = judge.floor() if judge else None
    if judge is None or floor is None:
        return []
    return [
        f"lexical floor: shared wording alone has the {judge.name} {floor:.2f}; the start of {name} has "
        f"{start.score:.2f}"
        for name, start in read_record(StartRecord, layout.start).root.items()
    ]


def training_notes(trainings: Sequence[TrainingRecord], *, remined: bool, later: int | None = None) -> list[str]:
    """Note what was sampled, mined again, cut, added, out of range or not learnt; trainings are in order of members.

    `later` is the number of pairs of later cycles, if the first learnt from some of them only.
    """
    # All members of a cycle learn from the same pairs and labels.
    shared = [one for one in trainings if one.member == trainings[0].member]
    first = next(one for one in shared if one.kind == "bi" and one.cycle == 1)
    again = [one for one in shared if remined and one.kind == "bi" and one.cycle > 1]
    clamped = {"clamp": "clamped them", "raw": "took them raw"}
    return [
        *dict.fromkeys(
            f"the weights of the {one.kind}-encoder of {one.member} are merged: {one.merged:g} of the student, "
            f"{1 - one.merged:g} of what it started from (merge)"
            for one in trainings
            if one.merged < 1
        ),
        *([f"cycle 1 learnt from {first.labels:,} of {later:,} pairs (first_share)"] if later else []),
        *(f"cycle {one.cycle}: {one.labels:,} pairs were mined again" for one in again),
        # Once for all cycles that agree.
        *dict.fromkeys(f"{one.member}: {note}" for one in trainings for note in _cuts(one)),
        *(
            f"cycle {one.cycle}: the cross-encoders learnt {one.hard:,} rule-made pairs in addition to {one.labels:,}"
            for one in shared
            if one.hard
        ),
        *(
            f"cycle {one.cycle}: {one.outside:,} of {one.labels:,} labels for the {one.kind}-encoders were outside "
            f"[0, 1]; the BCE loss {clamped[one.negatives]}"
            for one in shared
            if one.outside
        ),
        *(
            f"cycle {one.cycle}: the {one.kind}-encoder of {one.member} has not learnt its teachers' order of pairs "
            f"(agreement {one.agreement:.2f} on held-out pairs, {LEARNT:g} wanted)"
            for one in trainings
            if one.agreement is not None and one.agreement < LEARNT
        ),
    ]


def _cuts(one: TrainingRecord) -> Iterator[str]:
    learnt, own = one.cuts, one.own_cuts
    if learnt is not None and learnt.cut:
        yield f"in the training of {learnt.kind}-encoders, {learnt}"
    if own is not None and own.cut and (learnt is None or own.max_tokens != learnt.max_tokens):
        yield f"wherever a {own.kind}-encoder scores, {own}"


def learnt_lengths(training: TrainingRecord) -> str:
    """Describe for a card what a trained model learnt from and what it cuts by itself."""
    learnt, own = training.cuts, training.own_cuts
    if learnt is None or own is None:
        return "not recorded"
    whole = f"{learnt.counted - learnt.cut:,} of {learnt.counted:,} {learnt.unit}"
    learnt_from = f"learnt from {learnt.unit} of up to {learnt.max_tokens:,} tokens ({whole} whole)"
    return f"{learnt_from}, cuts longer ones at {own.max_tokens:,}"
