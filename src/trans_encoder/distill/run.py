"""A run on pairs: from a configuration to the chosen bi- and cross-encoders, in a folder that can be continued."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

from pydantic import PrivateAttr

from trans_encoder.config import RunConfig, TeacherConfig
from trans_encoder.data import PairSet, check_varied
from trans_encoder.distill.conclusion import conclude, idle
from trans_encoder.distill.cycle import Cycle, CycleStages, run_cycle, run_in_turn
from trans_encoder.distill.judges import Judge, choose_judge, harm_notes, has_learnt
from trans_encoder.distill.preparing import Miner
from trans_encoder.distill.team import (
    Team,
    assemble,
    assemble_teachers,
    check_coverage,
    check_models,
    resolve_members,
    settings_of,
)
from trans_encoder.encoders import BiEncoder, CrossEncoder, Kind, best_device, load_encoder
from trans_encoder.errors import DataError, RunError
from trans_encoder.progress import progress
from trans_encoder.runs import (
    Chosen,
    Engine,
    Layout,
    ResultRecord,
    Run,
    check_begun,
    check_trackers,
    note_environment,
    read_record,
    run_folder,
)
from trans_encoder.teachers import ScoreFunction, Vote, fingerprint_of


class Result(ResultRecord):
    """A finished run: its record, and the models, which are loaded when they are asked for."""

    folder: Path
    _loaded: dict[str, BiEncoder | CrossEncoder] = PrivateAttr(default_factory=dict)

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Read the result of a finished run."""
        folder = Path(folder)
        try:
            record = read_record(ResultRecord, Layout(folder).result)
        except RunError as error:
            raise RunError(f"{folder} holds no finished run ({error}); run the training to its end first") from error
        return cls(folder=folder, **dict(record))

    @cached_property
    def bis(self) -> dict[str, BiEncoder]:
        """The chosen bi-encoder of each member."""
        return {name: cast(BiEncoder, self._load(member.bi)) for name, member in self.members.items()}

    @cached_property
    def crosses(self) -> dict[str, CrossEncoder]:
        """The chosen cross-encoder of each member; empty where none was trained."""
        chosen = {name: member.cross for name, member in self.members.items()}
        return {name: cast(CrossEncoder, self._load(model)) for name, model in chosen.items() if model is not None}

    @property
    def bi(self) -> BiEncoder:
        """The bi-encoder with the best score; else the first member's, of a sequential ensemble the last's."""
        return cast(BiEncoder, self._load(self.members[self._best("bi")].bi))

    @property
    def cross(self) -> CrossEncoder:
        """The cross-encoder with the best score; else the first member's, of a sequential ensemble the last's."""
        if not any(member.cross for member in self.members.values()):
            raise RunError("this run trained no cross-encoder: its formulation was bi (standard self-distillation)")
        return cast(CrossEncoder, self._load(cast(Chosen, self.members[self._best("cross")].cross)))

    @property
    def to_ship(self) -> dict[Kind, Path]:
        """The folders of the best bi-encoder and cross-encoder, those that `bi` and `cross` load.

        A cross-encoder that has not learnt what it was taught is left out.
        """
        kinds: tuple[Kind, ...] = ("bi", "cross") if any(each.cross for each in self.members.values()) else ("bi",)
        best = {kind: cast(Chosen, self.members[self._best(kind)].chosen(kind)) for kind in kinds}
        return {kind: self.folder / model.folder for kind, model in best.items() if kind == "bi" or has_learnt(model)}

    @property
    def teachers(self) -> list[str]:
        """The frozen encoders that taught the members, by the names of their columns in the labels."""
        teachers = map(TeacherConfig.model_validate, Run.open(self.folder).config.get("teachers", ()))
        return [str(teacher.name) for teacher in teachers if teacher.names_model]

    def _best(self, kind: Kind) -> str:
        scores = {name: chosen.score for name, member in self.members.items() if (chosen := member.chosen(kind))}
        if Run.open(self.folder).config["strategy"] == "sequential-ensemble":
            scores = dict(reversed(scores.items()))  # of equal ones the last, which learnt from those before it
        return max(scores, key=lambda name: float("-inf") if scores[name] is None else cast(float, scores[name]))

    def _load(self, chosen: Chosen) -> BiEncoder | CrossEncoder:
        """Load a model once, with the run's device and settings."""
        if chosen.folder not in self._loaded:
            self._loaded[chosen.folder] = load_encoder(self.folder / chosen.folder, **self._settings)
        return self._loaded[chosen.folder]

    @cached_property
    def _settings(self) -> dict[str, Any]:
        config = Run.open(self.folder).config
        # A finished run may be opened on a machine without the device that it ran on.
        here = config["device"].partition(":")[0] in ("cpu", best_device().partition(":")[0])
        return {"device": config["device"] if here else None, "trust_remote_code": config["trust_remote_code"]}


logger = logging.getLogger(__name__)


def run(
    config: RunConfig,
    pairs: PairSet,
    *,
    out: str | Path,
    judge: Judge | None = None,
    miner: Miner | None = None,
    engine: Engine | None = None,
    functions: Mapping[str, ScoreFunction] | None = None,
) -> Result:
    """Run a configuration on pairs; without a judge some pairs are held out for one that needs no labels.

    With `selection = "last"` there is none at all, and the last checkpoint of each kind is kept. A miner finds new
    pairs for every cycle after the first. Functions are those that the configuration's teachers name.
    """
    place = run_folder(out)
    check_trackers(config.trackers)
    config, notes = resolve_members(config)
    inputs = gather_inputs(config, pairs, judge=judge, miner=miner, functions=functions)
    if not Layout(place).manifest.exists():
        check_models(config, inputs.team)
    for note in notes:
        logger.warning(note)
    pairs, judge = inputs.pairs, inputs.judge
    if inputs.held_out is not None:
        held_out = len(inputs.held_out)
        notes.append(f"no dev set was given: {held_out:,} of {len(pairs) + held_out:,} pairs were held out to judge by")
    for note in harm_notes(inputs.team, judge, inputs.teachers):
        notes.append(note)
        logger.warning(note)
    first, later = first_pairs(config, pairs, miner=miner)
    with (
        progress("trainings of the run", total=config.cycles * len(config.kinds) * len(inputs.team)) as advance,
        Run.claim(place, config=settings_of(config, place), origin=inputs.origin, engine=engine) as folder,
    ):
        note_environment(folder.layout.environment, device=best_device())
        cycle = Cycle(1, folder.layout, config, judge, inputs.teachers)
        stages = CycleStages(folder, cycle, miner, later, inputs.held_out, advance)
        team = _run_cycles(stages.prepare(inputs.team, first), stages)
        if stages.cycle.number < config.cycles:
            notes.append(
                f"stopped after cycle {stages.cycle.number} of {config.cycles}: nothing more was gained for any member"
            )
            logger.warning(notes[-1])
        stages.finish()
        conclude(team, stages, pairs, notes=notes)
    return Result.open(out)


def is_begun(config: RunConfig, pairs: PairSet, *, out: str | Path, judge: Judge | None = None) -> bool:
    """Return whether a run has been begun in a folder; refuse one that `run` would refuse, and write nothing."""
    config, place = resolve_members(config)[0], run_folder(out)
    origin = gather_inputs(config, pairs, judge=judge, miner=None).origin
    return check_begun(place, config=settings_of(config, place), origin=origin)


@dataclass(frozen=True)
class RunInputs:
    """What a run works with, and the hashes of what it was given."""

    team: Team
    pairs: PairSet
    held_out: PairSet | None
    judge: Judge | None
    origin: dict[str, Any]
    teachers: tuple[Vote, ...] = ()


def gather_inputs(
    config: RunConfig,
    pairs: PairSet,
    *,
    judge: Judge | None,
    miner: Miner | None,
    functions: Mapping[str, ScoreFunction] | None = None,
) -> RunInputs:
    """Find the team and the judge of a configuration whose members are resolved."""
    if len(pairs) < 2:
        raise DataError(f"got {len(pairs)} pairs; a run needs at least 2, and some thousands to be of use")
    check_varied(pairs)
    pairs, team = pairs.without_scores(), assemble(config)
    origin: dict[str, Any] = {"pairs": {"count": len(pairs), "hash": pairs.hash}}
    pairs, held_out, judge = choose_judge(config, pairs, judge)
    origin["judge"] = judge.fingerprint if judge else None
    origin["models"] = {
        member.name: {"bi": member.start.fingerprint(), "plm": member.plm.fingerprint()} for member in team
    }
    if miner is not None:
        origin["remined"] = dict(miner.fingerprint)
    teachers = assemble_teachers(config, team, functions)
    check_coverage(teachers, pairs)
    if teachers:
        origin["teachers"] = {vote.teacher.name: dict(fingerprint_of(vote.teacher)) for vote in teachers}
    return RunInputs(team, pairs, held_out, judge, origin, teachers)


def first_pairs(config: RunConfig, pairs: PairSet, *, miner: Miner | None) -> tuple[PairSet, PairSet | None]:
    """Return the pairs of the first cycle and, if they are a sample only, those of the later ones."""
    if config.first_share == 1 or config.cycles == 1 or miner is not None:
        return pairs, None
    return pairs.sample(max(2, round(config.first_share * len(pairs))), seed=config.seed), pairs


def _run_cycles(team: Team, stages: CycleStages) -> Team:
    """Run the cycles until nothing is gained any more."""
    config = stages.cycle.config
    run_one = run_in_turn if config.strategy == "sequential-ensemble" else run_cycle
    for number in range(1, config.cycles + 1):
        stages.begin(number, team)
        team = run_one(team, stages)
        first_of_few = number == 1 and stages.later is not None  # all pairs may gain what some did not
        if 0 < config.patience <= idle(team, stages) and not first_of_few:
            break
    return team
