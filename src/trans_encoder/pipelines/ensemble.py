"""The team of a run and the encoders among its teachers as one scorer."""

import logging
from pathlib import Path
from typing import cast

from trans_encoder.config import FUNCTION
from trans_encoder.data import PairSet
from trans_encoder.distill.judges import has_learnt
from trans_encoder.distill.run import Result
from trans_encoder.distill.team import assemble, assemble_teachers, config_of
from trans_encoder.evaluation.ensembles import Ensemble, Voter, check_ensemble_folder, save_ensemble
from trans_encoder.runs import Chosen, Layout
from trans_encoder.teachers import ModelRef

logger = logging.getLogger(__name__)

_SAMPLE = 1000


def ensemble_run(run: str | Path | Result, *, out: str | Path) -> Ensemble:
    """Save the chosen models of a run and the encoders among its teachers as one ensemble.

    A cross-encoder that has not learnt is left out. The folder holds copies of all models; `score`, `evaluate` and
    `label` take it like a model.
    """
    check_ensemble_folder(Path(out))  # before all models are loaded
    result = run if isinstance(run, Result) else Result.open(run)
    config, layout = config_of(result.folder), Layout(result.folder)
    pairs = PairSet.open(layout.pairs())
    sample = pairs if len(pairs) <= _SAMPLE else pairs.sample(_SAMPLE, seed=config.seed)
    both = config.both_orders and config.both_orders_labels
    voters = [Voter(f"{name}-bi", encoder) for name, encoder in result.bis.items()]
    for name, encoder in result.crosses.items():
        if has_learnt(cast(Chosen, result.members[name].cross)):
            voters.append(Voter(f"{name}-cross", encoder, both_orders=both))
        else:
            logger.warning("the cross-encoder of %s is left out: it has not learnt its teachers' order of pairs", name)
    encoders = config.model_copy(
        update={"teachers": tuple(each for each in config.teachers if not each.spec.startswith(FUNCTION))}
    )
    for vote in assemble_teachers(encoders, assemble(encoders)):
        if isinstance(vote.teacher, ModelRef):
            voters.append(Voter(vote.teacher.name, vote.teacher.load(), vote.weight, vote.teacher.both_orders))
    return save_ensemble(voters, sample, out=out)
