"""The end of a run: choose among the cycles, save the chosen models, and report whether it helped."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from trans_encoder.data import PairSet
from trans_encoder.distill.cards import Facts, write_card
from trans_encoder.distill.cycle import CycleStages
from trans_encoder.distill.judges import Comparison, Judge, can_judge
from trans_encoder.distill.selection import LEARNT, Candidate, Verdict, choose, choose_by_views, idle_cycles, verdict_of
from trans_encoder.distill.team import Member, Team, knows_labels
from trans_encoder.distill.work import Cycle
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


def idle(team: Team, stages: CycleStages) -> int:
    """Count the cycles up to this one since any member's encoder was better than all before it, its start included.

    Bi-encoders whose harm the judge cannot see do not count; if there are no others, no cycle counts as idle.
    """
    cycle = stages.cycle
    return min(
        (
            idle_cycles(_candidates(member, kind, cycle))
            for member in team
            for kind in cycle.config.kinds
            if kind == "cross" or can_judge(member, cycle.judge)
        ),
        default=0,
    )


def conclude(team: Team, stages: CycleStages, pairs: PairSet, *, notes: Sequence[str]) -> None:
    """Choose each member's best models (independently for each kind), keep them and write the result."""
    cycle, layout, later = stages.cycle, stages.layout, stages.later
    judge, kinds, remined = cycle.judge, cycle.config.kinds, stages.miner is not None
    measure = f"{judge.name} x100 {judge.basis}" if judge else None
    facts = Facts(
        cycle.config,
        pairs_count=len(pairs),
        pairs_hash=pairs.hash,
        measure=measure,
        remined=remined,
        knows_labels=knows_labels(team, cycle.frozen),
    )
    results, keeping = {}, []
    for member in team:
        chosen: dict[Kind, Chosen] = {}
        for kind in kinds:
            start, *trained = _candidates(member, kind, cycle)
            if kind == "cross":
                best = choose(trained)
            else:
                best = choose_by_views(start, trained, else_start=not can_judge(member, judge))
            place = _place(member, kind, cycle)
            keeping.append(_keep(best, start, place=place, stages=stages, facts=facts))
            evidence = (best if best.cycle else trained[-1]).evidence
            known = Comparison(kind, start.score, best.score, best.agreement, _may_be_strong(member))
            verdict = verdict_of(evidence) if evidence else judge.compare(known) if judge else Verdict.NOT_KNOWN
            chosen[kind] = Chosen(
                folder=layout.name(place),
                cycle=best.cycle,
                step=best.step,
                score=best.score,
                helped=verdict.helped,
                agreement=best.agreement,
                evidence=evidence,
                flips=best.flips,
                merged=best.merged,
            )
        results[member.name] = MemberResult(
            source=member.given.source,
            start_score=start.score,
            bi=chosen["bi"],
            cross=chosen.get("cross"),
            start_flips=start.flips,
        )
    stages.folder.complete(keeping)
    trainings = [training for member in team for kind in kinds for training in _trainings(member, kind, cycle)]
    told = (
        *notes,
        *training_notes(trainings, remined=remined, later=None if later is None else len(later)),
        *([] if any(each.bi.evidence for each in results.values()) else _floor(layout, judge)),
    )
    digests = {stage.name: stages.folder.manifest.digest(stage.name) for stage in keeping}
    work = Conclude(cycle, results, told)
    stages.folder.complete([stages.stage(layout.result, work, best=digests, notes=told)])


def _may_be_strong(member: Member) -> bool:
    """Whether a start may be stronger than shared wording: trained on labels, or one of the released checkpoints."""
    return member.supervised or member.given.source in KNOWN


def _place(member: Member, kind: Kind, cycle: Cycle) -> Path:
    return cycle.layout.best(member.name if len(cycle.starts) > 1 else None, kind)


def _candidates(member: Member, kind: Kind, cycle: Cycle) -> list[Candidate]:
    """Return the start and what each cycle made; a cross-encoder has no start and is compared with the bi-encoder's."""
    start = read_record(StartRecord, cycle.layout.start).root[member.name]
    found = [Candidate(member.given, cycle=0, step=0, score=start.score, flips=start.flips)]
    for training in _trainings(member, kind, cycle):
        model = member.student(kind, cycle.layout.student(training.cycle, member.name, kind))
        merged = None if training.merged == 1 else training.merged
        learnt = training.agreement, training.evidence, training.flips, merged
        found.append(Candidate(model, training.cycle, training.best_step, training.best_score, *learnt))
    return found


def _trainings(member: Member, kind: Kind, cycle: Cycle) -> list[TrainingRecord]:
    places = (cycle.layout.student(number, member.name, kind) for number in range(1, cycle.number + 1))
    return [read_record(TrainingRecord, training_record(place)) for place in places]


def _keep(best: Candidate, start: Candidate, *, place: Path, stages: CycleStages, facts: Facts) -> Stage:
    trained = training_record(Path(best.model.source))
    lengths = learnt_lengths(read_record(TrainingRecord, trained)) if best.cycle else None
    card = write_card(best, start, facts=facts, lengths=lengths)
    work = Keep(best.model, is_start=best.cycle == 0, card=card)
    return stages.stage(place, work, by="owner", model=stages.digest(best.model), card=identity(card))


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

    cycle: Cycle
    """The last one."""
    results: Mapping[str, MemberResult]
    notes: tuple[str, ...]

    def __call__(self, path: Path) -> None:
        """Write the result."""
        judge, kinds = self.cycle.judge, self.cycle.config.kinds
        ensemble = self._ensemble(judge) if judge is not None and len(self.results) > 1 else {}
        if not is_first_rank():
            return
        result = ResultRecord(
            metric=judge.name if judge else None,
            cycles=self.cycle.number,
            members=self.results,
            ensemble=ensemble,
            helped={kind: self._verdict(kind).helped for kind in kinds},
            summary=" ".join(self._summary(kind) for kind in kinds),
            notes=self.notes,
        )
        write_record(path, result)

    def _ensemble(self, judge: Judge) -> dict[str, float]:
        team = self.cycle.starts
        scores = {"start": judge.together([member.given for member in team])}
        for kind in self.cycle.config.kinds:
            scores[kind] = judge.together([member.student(kind, _place(member, kind, self.cycle)) for member in team])
        return scores

    def _chosen(self, kind: Kind) -> dict[str, Chosen]:
        return {name: chosen for name, result in self.results.items() if (chosen := result.chosen(kind))}

    def _means(self, kind: Kind) -> Comparison:
        """Return the members' means: of their starts, their chosen models and how far those have learnt."""
        chosen = self._chosen(kind).values()
        return Comparison(
            kind,
            start=_mean(result.start_score for result in self.results.values()),
            kept=_mean(each.score for each in chosen),
            # The scores of bi-encoders tell more.
            agreement=_mean(each.agreement for each in chosen) if kind == "cross" else None,
            supervised=any(map(_may_be_strong, self.cycle.starts)),
        )

    def _verdict(self, kind: Kind) -> Verdict:
        """Compare the members' means; not known as soon as it is not known of one member."""
        chosen = self._chosen(kind).values()
        if self.cycle.judge is None or any(each.helped is None for each in chosen):
            return Verdict.NOT_KNOWN
        if any(each.evidence for each in chosen):
            return Verdict.BETTER if any(each.helped for each in chosen) else Verdict.NOT_BETTER
        return self.cycle.judge.compare(self._means(kind))

    def _summary(self, kind: Kind) -> str:
        judge, means, verdict = self.cycle.judge, self._means(kind), self._verdict(kind)
        name = f"{kind}-encoder" + ("s" if len(self.results) > 1 else "")
        if judge is None:
            return f"Kept the {name} of the last cycle: without a judge it is not known whether it is better."
        if verdict is Verdict.NOT_KNOWN:
            return self._not_known(kind, name)
        verb = verdict.capitalize()
        if told := self._told(kind):
            kept = "" if verdict is Verdict.BETTER else " The start was kept."
            return f"{verb} {name}: {told}.{kept}"
        if means.agreement is not None:
            return (
                f"{verb} {name}: agreement with the teachers {means.agreement:.2f} {judge.basis}, "
                f"where {LEARNT:g} tells better from worse."
            )
        if kind == "bi" and all(result.bi.cycle == 0 for result in self.results.values()):
            start = f"the start ({judge.name} {means.start:.2f} {judge.basis})"
            return f"It did not help the {name}: {start} was at least as good as every cycle's, and was kept."
        return f"{verb} {name}: {judge.name} {means.kept:.2f} {judge.basis}, the start {means.start:.2f}."

    def _told(self, kind: Kind) -> str:
        """Say what views told of each member's student; nothing where none was asked."""
        found = {name: each.evidence for name, each in self._chosen(kind).items()}
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
        layout, judge = self.cycle.layout, self.cycle.judge
        unseen = [member.name for member in self.cycle.starts if not can_judge(member, judge)]
        kept = [name for name in unseen if self.results[name].bi.cycle == 0]
        if kept:
            students = (layout.name(layout.student(self.cycle.number, member, "bi")) for member in kept)
            return (
                f"Kept the original {name} of {' and '.join(kept)}: without labels it is not known whether "
                f"the new one is better{told}. The new one is in {' and '.join(students)}; "
                f"--set selection=last puts it in best/."
            )
        if told:
            return f"Not known whether the {name} became better{told}. Kept what has the best label-free score."
        return (
            f"Not known whether the {name} became better: without labels that can be told only of starts that are "
            f"weaker than shared wording. Kept what has the best label-free score; give a dev set to be sure."
        )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


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
