"""What a run works with: the team, the judge, the pairs that are left to learn from, and the hashes of its inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trans_encoder.config import RunConfig
from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.judges import Judge, LabelFreeJudge, hold_out
from trans_encoder.distill.labels import Vote, fingerprint_of
from trans_encoder.distill.remining import Miner
from trans_encoder.distill.teachers import ScoreFunction, assemble_teachers
from trans_encoder.distill.team import Team, assemble
from trans_encoder.errors import DataError


@dataclass(frozen=True)
class Terms:
    """What a run works with, and the hashes of what it was given."""

    team: Team
    pairs: PairSet
    held_out: PairSet | None
    judge: Judge | None
    origin: dict[str, Any]
    teachers: tuple[Vote, ...] = ()


def agree(
    config: RunConfig,
    pairs: PairSet,
    *,
    judge: Judge | None,
    miner: Miner | None,
    functions: Mapping[str, ScoreFunction] | None = None,
) -> Terms:
    """Find the team and the judge of a configuration whose members are resolved."""
    if len(pairs) < 2:
        raise DataError(f"got {len(pairs)} pairs; a run needs at least 2, and some thousands to be of use")
    pairs, team, held_out = pairs.without_scores(), assemble(config), None
    origin: dict[str, Any] = {"pairs": {"count": len(pairs), "hash": pairs.hash}}
    if judge is None and config.selection == "label-free":
        pairs, held_out = hold_out(pairs, seed=config.seed, views=bool(config.teachers))
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
    return Terms(team, pairs, held_out, judge, origin, teachers)
