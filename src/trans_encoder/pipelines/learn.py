"""Learn from saved labels: one student from any file of pairs with scores, whoever gave them.

This is one half of a cycle by itself (Eq. 2 or 3). The labels may come from `trans-encoder label`, an LLM, an API or
people; the student learns them as a run's students learn those of their teachers.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trans_encoder.config import MemberConfig, RunConfig, TrainingPlan, make_config
from trans_encoder.data import PairSet, TestSet
from trans_encoder.data.screening import ROUNDING
from trans_encoder.distill.cards import write_learnt_card
from trans_encoder.distill.judges import DevJudge, Judge
from trans_encoder.encoders import (
    Encoder,
    Kind,
    TrainingOptions,
    check_length,
    check_precision,
    fingerprint,
    load_encoder,
    train,
)
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.progress import progress
from trans_encoder.ranks import is_first_rank
from trans_encoder.runs import (
    Layout,
    LearningRecord,
    Run,
    identity,
    run_folder,
    save_trained,
    scratch,
)
from trans_encoder.teachers import ModelRef

logger = logging.getLogger(__name__)

Labels = PairSet | str | Path
COSINES = (-1.0, 1.0)
"""What labels may be without `score_range`: cosines, or probabilities among them."""
_RUN_SETTINGS = ("seed", "both_orders", "device", "precision", "fast", "trust_remote_code")
"""What counts of a run's settings beside the kind's plan."""


def read_labels(
    labels: Labels,
    *,
    score_range: tuple[float, float] | None = None,
    columns: Sequence[str] | None = None,
    skip_bad: bool = False,
) -> PairSet:
    """Read labelled pairs; scores of another `score_range`, such as 0 to 5, are mapped to 0 to 1.

    A score outside the range is a bad line: an error that names file and line, or left out with `skip_bad`.
    """
    low, high = score_range or COSINES
    if not low < high:
        raise ConfigurationError(f"scores are said to be from {low:g} to {high:g}; the first must be the smaller one")
    if isinstance(labels, PairSet):
        pairs = labels
    else:
        pairs = PairSet.read(labels, columns=columns, skip_bad=skip_bad, score_range=(low, high))
    scores = pairs.scores
    if scores is None:
        raise DataError(f"{labels} has no scores to learn; name their column: --columns A,B,SCORE")
    outside = np.flatnonzero((scores < low - ROUNDING) | (scores > high + ROUNDING))
    if len(outside):
        raise DataError(f"pair {outside[0] + 1} has the score {scores[outside[0]]:g}, outside {low:g} to {high:g}")
    if len(scores) > 1 and np.ptp(scores) == 0:
        raise DataError(
            f"{labels}: all {len(scores):,} scores are {scores[0]:g}; there is nothing to learn from equal scores"
        )
    inside = scores.clip(low, high)  # rounding may have left a score just outside
    if score_range is not None:
        inside = (inside - low) / (high - low)
    return pairs if np.array_equal(inside, scores) else pairs.with_scores(inside)


def learn(
    labels: Labels,
    model: str | MemberConfig,
    *,
    kind: Kind,
    out: str | Path,
    preset: str = "small",
    dev: TestSet | PairSet | None = None,
    score_range: tuple[float, float] | None = None,
    columns: Sequence[str] | None = None,
    **overrides: Any,
) -> Encoder:
    """Train one student on labelled pairs and leave it in `out`/bi or `out`/cross.

    `model` is what the student starts from; a `MemberConfig` also chooses its pooling and prompts. Overrides are fields
    of the kind's TrainingPlan and, of RunConfig, seed, both_orders, device, precision, fast and trust_remote_code. A
    dev set only chooses the best checkpoint. The same call continues a stopped training and returns what a finished
    one made.
    """
    config = _config(model, kind=kind, preset=preset, overrides=overrides)
    (member,) = config.members
    if kind == "cross" and (member.pooling or member.prompts):
        raise ConfigurationError("a cross-encoder reads both texts at once: pooling and prompts are for --kind bi")
    check_precision(config.precision, config.device)
    pairs = read_labels(labels, score_range=score_range, columns=columns)
    test = TestSet("dev", dev) if isinstance(dev, PairSet) else dev
    work = Learn(config, kind, pairs, None if test is None else DevJudge(test))
    inputs, folder = work.origin(), run_folder(out)
    if not Layout(folder).manifest.exists():
        work.load()  # a model that cannot be used fails before anything is written
    with (
        progress("learning", total=1) as advance,
        Run.claim(folder, config=work.config(), origin=inputs) as run,
    ):
        run.complete([run.stage(run.layout.trained(kind), inputs, work)], advance=advance)
    made = Layout(Path(out)).trained(kind)
    loading: dict[str, Any] = {"trust_remote_code": config.trust_remote_code, "fast": config.fast_option}
    return load_encoder(made, kind=kind, device=config.given_device, **loading)


def _config(model: str | MemberConfig, *, kind: Kind, preset: str, overrides: Mapping[str, Any]) -> RunConfig:
    """Resolve the settings; those of the training may be given without saying whose they are."""
    named = {f"{kind}.{key}" if key in TrainingPlan.model_fields else key: value for key, value in overrides.items()}
    settings = {key.partition(".")[0] for key in named}
    if unused := sorted(settings & set(RunConfig.model_fields) - {kind, *_RUN_SETTINGS}):
        raise ConfigurationError(
            f"{', '.join(unused)}: only for the cycles of a run; one student from saved labels takes the settings of "
            f"its training and {', '.join(_RUN_SETTINGS)}"
        )
    return make_config([model], preset=preset, overrides=named)


@dataclass(frozen=True)
class Learn:
    """The work of `learn`: train a student and save it with a card and a record of how that went."""

    settings: RunConfig
    kind: Kind
    labelled: PairSet
    judge: Judge | None = None

    @property
    def plan(self) -> TrainingPlan:
        """How the student is trained."""
        return self.settings.plan(self.kind, str(self.settings.members[0].name))

    def config(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        names = ("seed", "both_orders", "trust_remote_code", "precision")
        return {
            "kind": self.kind,
            "model": self.settings.members[0].model_dump(mode="json", exclude_none=True),
            "plan": self.plan.model_dump(mode="json"),
            **{name: getattr(self.settings, name) for name in names},
        }

    def origin(self) -> dict[str, Any]:
        """Return the hashes of what the result is made from."""
        return {
            "labels": {"pairs": len(self.labelled), "hash": self.labelled.hash},
            "judge": self.judge and self.judge.fingerprint,
            "model": fingerprint(self.settings.members[0].bi),
        }

    def __call__(self, path: Path) -> None:
        """Write the student to a folder."""
        student = self.load()
        options = TrainingOptions(
            folder=scratch(path),
            seed=self.settings.seed,
            judge=self.judge,
            precision=self.settings.precision,
            made_from=identity({"config": self.config(), "origin": self.origin()}),
            description=f"{self.kind}-encoder from labels",
        )
        both_orders = self.settings.both_orders and self.kind == "cross"
        training = train(student, self.labelled, plan=self.plan, options=options, both_orders=both_orders)
        cuts = training.cuts
        if cuts is not None and cuts.cut and is_first_rank():
            logger.warning("in the training, %s", cuts)
        self._say_what_is_outside()
        record = LearningRecord(
            kind=self.kind,
            seed=self.settings.seed,
            labels=len(self.labelled),
            cuts=cuts,
            best_step=training.best_step,
            best_score=training.best_score,
            history=tuple(training.history),
        )
        card = write_learnt_card(
            self.settings.members[0].bi,
            kind=self.kind,
            pairs=self.labelled,
            plan=self.plan,
            cuts=cuts,
            score=training.best_score,
        )
        save_trained(path, training.encoder, record, card=card)

    def _say_what_is_outside(self) -> None:
        """Say how many labels the loss cannot take as they are."""
        scores = np.asarray(self.labelled.scores)
        outside = int(((scores < -ROUNDING) | (scores > 1 + ROUNDING)).sum())
        if outside and self.plan.loss == "bce" and self.plan.negatives == "clamp" and is_first_rank():
            logger.warning(
                "%s of %s labels were outside [0, 1]; the BCE loss clamped them (--range -1,1 maps them into it)",
                f"{outside:,}",
                f"{len(scores):,}",
            )

    def load(self) -> Encoder:
        """Load what the student starts from."""
        member, config = self.settings.members[0], self.settings
        model = ModelRef(
            str(member.name),
            self.kind,
            member.bi,
            max_tokens=None,
            pooling=member.pooling,
            prompts=member.prompts,
            device=config.given_device,
            trust_remote_code=config.trust_remote_code,
            fast=config.fast_option,
        )
        student = model.load(seed=config.seed)
        check_length(student.model, self.plan.given_tokens, name=member.bi)
        return student
