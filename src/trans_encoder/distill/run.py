"""A whole run: from pairs and models to the chosen bi- and cross-encoders, in a folder that can always be continued."""

import json
import logging
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trans_encoder.config import RunConfig, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import TestSet
from trans_encoder.distill.cards import Facts
from trans_encoder.distill.conclusion import conclude, harm_notes, idle
from trans_encoder.distill.cycle import Workshop, run_cycle
from trans_encoder.distill.judges import DevJudge, Judge, LabelFreeJudge, hold_out
from trans_encoder.distill.labels import Vote, fingerprint_of
from trans_encoder.distill.remining import Miner
from trans_encoder.distill.result import Result
from trans_encoder.distill.teachers import ScoreFunction, assemble_teachers, name_functions
from trans_encoder.distill.team import Team, assemble, resolve_members
from trans_encoder.encoders.loading import best_device
from trans_encoder.errors import DataError
from trans_encoder.files import write_json
from trans_encoder.participants import MemberConfig, TeacherConfig
from trans_encoder.progress import progress
from trans_encoder.ranks import is_first_rank
from trans_encoder.runs.claims import check_begun, run_folder
from trans_encoder.runs.differences import differences
from trans_encoder.runs.layout import Layout
from trans_encoder.runs.run import Run
from trans_encoder.runs.stages import Engine
from trans_encoder.runs.trackers import check_trackers

__all__ = ["Result", "distil", "run"]

logger = logging.getLogger(__name__)

_LIBRARIES = ("trans-encoder", "torch", "transformers", "sentence-transformers", "tokenizers", "numpy", "pyarrow")


def distil(
    pairs: PairSet,
    models: str | MemberConfig | Sequence[str | MemberConfig],
    *,
    teachers: Sequence[str | TeacherConfig | ScoreFunction] = (),
    preset: str = "small",
    dev: TestSet | PairSet | None = None,
    out: str | Path,
    engine: Engine | None = None,
    **overrides: Any,
) -> Result:
    """Let bi- and cross-encoders teach each other on unlabelled pairs; one model is self-distillation.

    A model is `BI`, `BI=PLM` or a MemberConfig. Teachers beside them are never trained: each is a model's name,
    `lexical`, `tokens`, a file of scores, any of these with `=WEIGHT`, a TeacherConfig, or a function that takes a list
    of pairs and returns their scores. Overrides are fields of RunConfig, nested or dotted:
    `cycles=1, cross={"epochs": 2}`. If `out` holds an unfinished run of the same settings and inputs, it is continued.
    """
    team = [models] if isinstance(models, str | MemberConfig) else list(models)
    named = name_functions(teachers)
    config = make_config(team, preset=preset, overrides={**overrides, "teachers": named.teachers})
    test = TestSet("dev", dev) if isinstance(dev, PairSet) else dev
    judge = None if test is None else DevJudge(test)
    return run(config, pairs, out=out, judge=judge, engine=engine, functions=named.functions)


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
    for note in notes:
        logger.warning(note)
    terms = _agree(config, pairs, judge=judge, miner=miner, functions=functions)
    pairs, judge = terms.pairs, terms.judge
    if terms.held_out is not None:
        held_out = len(terms.held_out)
        notes.append(f"no dev set was given: {held_out:,} of {len(pairs) + held_out:,} pairs were held out to judge by")
    for note in harm_notes(terms.team, judge):
        notes.append(note)
        logger.warning(note)
    settings = settings_of(config, place)
    stages = partial(_stage_count, config, remined=miner is not None)
    with (
        progress("stages of the run", total=stages(config.cycles)) as advance,
        Run.claim(place, config=settings, origin=terms.origin, engine=engine, advance=advance) as folder,
    ):
        _note_environment(folder.layout.environment)
        workshop = Workshop(folder, config, judge, miner, terms.held_out, terms.teachers)
        workshop.prepare(terms.team, pairs)
        team, cycles = _run_cycles(terms.team, workshop)
        if cycles < config.cycles:
            notes.append(f"stopped after cycle {cycles} of {config.cycles}: nothing more was gained for any member")
            logger.warning(notes[-1])
            advance(stages(config.cycles) - stages(cycles))
        workshop.finish()
        measure = f"{judge.name} x100 {judge.basis}" if judge else None
        facts = Facts(config, pairs_count=len(pairs), pairs_hash=pairs.hash, measure=measure, remined=miner is not None)
        conclude(team, workshop, cycles=cycles, facts=facts, notes=notes)
    return Result.open(out)


def is_begun(config: RunConfig, pairs: PairSet, *, out: str | Path, judge: Judge | None = None) -> bool:
    """Tell whether a run has been begun in a folder; refuse one that `run` would refuse, and write nothing."""
    config, place = resolve_members(config)[0], run_folder(out)
    origin = _agree(config, pairs, judge=judge, miner=None).origin
    return check_begun(place, config=settings_of(config, place), origin=origin)


def settings_of(config: RunConfig, folder: Path) -> dict[str, Any]:
    """Return a configuration as a run folder keeps it: models in the folder itself are named from there."""
    settings = config.model_dump(mode="json")
    for member in settings["members"]:
        place = Path(member["bi"])
        if place.is_relative_to(folder):
            member["bi"] = place.relative_to(folder).as_posix()
    return settings


def config_of(folder: Path) -> RunConfig:
    """Read the configuration that a run folder keeps."""
    config = RunConfig.model_validate(Run.open(folder).config)
    layout = Layout(folder)
    members = (
        member.model_copy(update={"bi": str(folder / member.bi)}) if layout.is_from_text(member.bi) else member
        for member in config.members
    )
    return config.model_copy(update={"members": tuple(members)})


@dataclass(frozen=True)
class _Terms:
    """What a run works with, and the hashes of what it was given."""

    team: Team
    pairs: PairSet
    held_out: PairSet | None
    judge: Judge | None
    origin: dict[str, Any]
    teachers: tuple[Vote, ...] = ()


def _agree(
    config: RunConfig,
    pairs: PairSet,
    *,
    judge: Judge | None,
    miner: Miner | None,
    functions: Mapping[str, ScoreFunction] | None = None,
) -> _Terms:
    """Find the team and the judge of a configuration whose members are resolved."""
    if len(pairs) < 2:
        raise DataError(f"got {len(pairs)} pairs; a run needs at least 2, and some thousands to be of use")
    pairs, team, held_out = pairs.without_scores(), assemble(config), None
    origin: dict[str, Any] = {"pairs": {"count": len(pairs), "hash": pairs.hash}}
    if judge is None and config.selection == "label-free":
        pairs, held_out = hold_out(pairs, seed=config.seed)
        judge = LabelFreeJudge.of(held_out, seed=config.seed)
    origin["judge"] = judge.fingerprint if judge else None
    origin["models"] = {
        member.name: {"bi": member.start.fingerprint(), "plm": member.plm.fingerprint()} for member in team
    }
    if miner is not None:
        origin["remined"] = dict(miner.fingerprint)
    teachers = assemble_teachers(config, team, functions)
    if teachers:
        origin["teachers"] = {vote.teacher.name: dict(fingerprint_of(vote.teacher)) for vote in teachers}
    return _Terms(team, pairs, held_out, judge, origin, teachers)


def _run_cycles(team: Team, workshop: Workshop) -> tuple[Team, int]:
    """Run the cycles until nothing is gained any more; return the team and how many there were."""
    config = workshop.config
    for cycle in range(1, config.cycles + 1):
        team = run_cycle(team, workshop, cycle=cycle)
        if 0 < config.patience <= idle(team, workshop, cycle=cycle):
            break
    return team, cycle


def _stage_count(config: RunConfig, cycles: int, *, remined: bool) -> int:
    """Count pairs and starts, the labels and trainings of each cycle, the history, the kept models and the result.

    Pairs that are mined again are one stage more in every cycle but the first, and so are the start's labels of them.
    """
    kinds, members = (1 if config.formulation == "bi" else 2), len(config.members)
    labelled_again = config.anchor or config.teachers or config.scale not in (None, "none")
    again = (cycles - 1) * (2 if labelled_again else 1) if remined else 0
    labellings = members if config.strategy == "sequential-ensemble" else 1
    return 2 + cycles * kinds * (labellings + members) + again + 1 + kinds * members + 1


def _note_environment(path: Path) -> None:
    """Write what the run runs on; say so if that changed since it began, because results may then differ."""
    if not is_first_rank():
        return
    libraries = {name: version(name) for name in _LIBRARIES}
    now = {"python": platform.python_version(), "platform": platform.platform(), "device": best_device(), **libraries}
    if path.exists():
        try:
            changed = differences(json.loads(path.read_text(encoding="utf-8")), now)
        except (ValueError, AttributeError):
            changed = [f"{path.name} is damaged, and written anew"]
        if changed:
            logger.warning("the run was begun in another environment: %s", "; ".join(changed))
    write_json(path, now)
