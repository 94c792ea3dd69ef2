"""A run on pairs: from a configuration to the chosen bi- and cross-encoders, in a folder that can be continued."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, cast

from pydantic import PrivateAttr

from trans_encoder.config import RunConfig, TeacherConfig
from trans_encoder.data import PairSet, check_varied
from trans_encoder.distill.conclusion import conclude, idle
from trans_encoder.distill.cycle import CycleStages, run_cycle
from trans_encoder.distill.judges import Judge, choose_judge, harm_notes, has_learnt
from trans_encoder.distill.preparing import Miner
from trans_encoder.distill.team import (
    Team,
    assemble,
    assemble_teachers,
    check_coverage,
    check_models,
    embedders_of,
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
    settings = settings_of(config, place)
    asked = inputs.held_out is not None and any(vote.ask == 1 for vote in inputs.teachers)
    first, later = first_pairs(config, pairs, miner=miner)
    renewed = config.cycles - 1 if miner is not None else 1 if later is not None else 0
    team, teachers = inputs.team, inputs.teachers
    embedders = {model.name for member in team for model in embedders_of(member, team, teachers)}
    embedded = len(embedders) if config.in_batch else 0
    stages = partial(_stage_count, config, renewed=renewed, asked=asked, embedded=embedded)
    with (
        progress("stages of the run", total=stages(config.cycles)) as advance,
        Run.claim(place, config=settings, origin=inputs.origin, engine=engine, advance=advance) as folder,
    ):
        note_environment(folder.layout.environment, device=best_device())
        steps = CycleStages(folder, config, judge, miner, later, inputs.held_out, inputs.teachers)
        team, cycles = _run_cycles(steps.prepare(inputs.team, first), steps)
        if cycles < config.cycles:
            notes.append(f"stopped after cycle {cycles} of {config.cycles}: nothing more was gained for any member")
            logger.warning(notes[-1])
            advance(stages(config.cycles) - stages(cycles))
        steps.finish()
        conclude(team, steps, pairs, cycles=cycles, notes=notes)
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


def _run_cycles(team: Team, steps: CycleStages) -> tuple[Team, int]:
    """Run the cycles until nothing is gained any more; return the team and how many there were."""
    config = steps.config
    for cycle in range(1, config.cycles + 1):
        team = run_cycle(team, steps, cycle=cycle)
        first_of_few = cycle == 1 and steps.later is not None  # all pairs may gain what some did not
        if 0 < config.patience <= idle(team, steps, cycle=cycle) and not first_of_few:
            break
    return team, cycle


def _stage_count(config: RunConfig, cycles: int, *, renewed: int, asked: bool, embedded: int) -> int:
    """Count pairs and starts, the labels and trainings of each cycle, the history, the kept models and the result.

    Each start that loses common directions is one stage more, and so are the frozen teachers' scores of held-out pairs.
    Pairs that are mined again, or are new in the second cycle, are one stage more in each of these `renewed` cycles,
    and so are the start's labels of them, and what each of the `embedded` models makes of their sentences.
    """
    kinds, members = len(config.kinds), len(config.members)
    labelled_again = config.anchor or config.teachers or config.scale not in (None, "none")
    again = min(cycles - 1, renewed) * ((2 if labelled_again else 1) + embedded)
    labellings = members if config.strategy == "sequential-ensemble" else 1
    cleared = sum(bool(member.directions) for member in config.members)
    return 2 + asked + cleared + embedded + cycles * kinds * (labellings + members) + again + 1 + kinds * members + 1
