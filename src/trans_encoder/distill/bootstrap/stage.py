"""Stage 0 in a folder of its own, which continues where it was stopped and is never done twice.

```
OUT/
  config.json     the settings as resolved
  manifest.json   the hashes of text, dev set and model, and the checksums of what was made
  bi/             the bi-encoder: an ordinary sentence-transformers folder, with training.json beside its weights
  bi.training/    checkpoints, while the stage runs
```
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from trans_encoder.config import PoolingMode, TeacherConfig
from trans_encoder.data import PairSet, TestSet, Text
from trans_encoder.distill.bootstrap.plan import ContrastPlan, ObjectiveName, PresetName, make_plan
from trans_encoder.distill.bootstrap.tuning import tune
from trans_encoder.distill.cards import write_tuned_card
from trans_encoder.distill.judges import DevJudge, Judge
from trans_encoder.encoders import (
    BiEncoder,
    Precision,
    TrainingOptions,
    check_length,
    check_precision,
    checked_name,
    find_kind,
)
from trans_encoder.errors import ConfigurationError
from trans_encoder.ranks import world_size
from trans_encoder.runs import (
    Layout,
    Run,
    TuningRecord,
    check_trackers,
    run_folder,
    save_trained,
    scratch,
    tracked,
)
from trans_encoder.teachers import ModelRef, may_know_labels

logger = logging.getLogger(__name__)


def bootstrap(
    text: Text,
    model: str | Path,
    *,
    out: str | Path,
    objective: ObjectiveName = "simcse",
    preset: PresetName = "small",
    seed: int = 42,
    dev: TestSet | PairSet | None = None,
    pooling: PoolingMode | None = None,
    trust_remote_code: bool = False,
    device: str | None = None,
    precision: Precision = "auto",
    trackers: tuple[str, ...] = (),
    fast: bool | None = None,
    keep_start: bool = True,
    teachers: Sequence[str | Path | TeacherConfig] = (),
    **overrides: Any,
) -> BiEncoder:
    """Make a first bi-encoder of a PLM from raw text alone and leave it in `out`/bi.

    With `objective="similarities"` it learns the similarities that `teachers`, other bi-encoders, see in the text; a
    TeacherConfig also chooses a teacher's prompt.

    A dev set only chooses the best checkpoint: of the tuned ones, or with `keep_start` the model as it was if that is
    better than all of them. Overrides are fields of ContrastPlan. The same call continues a stopped
    stage and returns what a finished one made. Trackers write to `out`/logs.
    """
    if world_size() > 1:
        raise ConfigurationError(
            "a first bi-encoder is made in one process: each sentence is contrasted with all others of its batch; "
            "make it with trans-encoder bootstrap, without torchrun or accelerate launch, and give it as the model"
        )
    check_trackers(trackers)
    check_precision(precision, device or "auto")
    plan = make_plan(preset, objective=objective, overrides=overrides)
    taught_by = tuple(each if isinstance(each, TeacherConfig) else TeacherConfig(spec=str(each)) for each in teachers)
    check_teachers(objective, taught_by, trust_remote_code=trust_remote_code)
    test = TestSet("dev", dev) if isinstance(dev, PairSet) else dev
    judge = None if test is None else DevJudge(test)
    start = ModelRef(
        str(model),
        "bi",
        str(model),
        max_tokens=None,
        pooling=pooling,
        device=device,
        trust_remote_code=trust_remote_code,
        fast=fast,
    )
    work = Bootstrap(start, text, plan, seed, judge, precision, trackers, keep_start, taught_by)
    config, origin, folder = work.config(), work.origin(), run_folder(out)
    if not Layout(folder).manifest.exists():
        work.load()  # a model that cannot be used fails before anything is written
    with Run.claim(folder, config=config, origin=origin) as run:
        run.complete([run.stage(run.layout.trained("bi"), origin, work)])
    made = Layout(folder).trained("bi")
    return BiEncoder.load(made, device=device, trust_remote_code=trust_remote_code, fast=fast)


def check_teachers(objective: ObjectiveName, teachers: Sequence[TeacherConfig], *, trust_remote_code: bool) -> None:
    """Refuse teachers that nothing would ask, and those that cannot embed a text by itself, before any work is done."""
    if (objective == "similarities") != bool(teachers):
        raise ConfigurationError(
            "the objective similarities needs at least one teacher, and teachers need that objective; give "
            "--objective similarities --teacher MODEL, where MODEL is a bi-encoder"
        )
    for teacher in teachers:
        checked_name(teacher.spec, trust_remote_code=trust_remote_code)
        if find_kind(teacher.spec) != "bi":
            raise ConfigurationError(
                f"teacher {teacher.spec} is a cross-encoder, which cannot embed single texts; give a bi-encoder"
            )


@dataclass(frozen=True)
class Bootstrap:
    """The work of stage 0: tune a model and save it with a record of how that went."""

    start: ModelRef
    text: Text
    plan: ContrastPlan
    seed: int
    judge: Judge | None
    precision: Precision
    """Number format of the training."""
    trackers: tuple[str, ...]
    keep_start: bool
    """Save the model as it was where tuning made it worse on dev; a study of tuning must see the tuned one."""
    teachers: tuple[TeacherConfig, ...]
    """Bi-encoders whose similarities are learnt, all with the same weight."""

    def config(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        settings = {
            "plan": self.plan.model_dump(mode="json"),
            "model": self.start.source,
            "seed": self.seed,
            "pooling": self.start.pooling,
            "trust_remote_code": self.start.trust_remote_code,
            "precision": self.precision,
        }
        kept = {"spec", "prompt", "prompt1", "prompt2"}
        taught_by = [teacher.model_dump(include=kept, exclude_none=True) for teacher in self.teachers]
        settings |= {"teachers": taught_by} if taught_by else {}
        return settings if self.keep_start else {**settings, "keep_start": False}

    def origin(self) -> Mapping[str, Any]:
        """Return the hashes of what the result is made from."""
        return {
            "text": {"sentences": len(self.text), "hash": self.text.hash},
            "judge": self.judge and self.judge.fingerprint,
            "model": self.start.fingerprint(),
            **({"teachers": [teacher.fingerprint() for teacher in self._teachers()]} if self.teachers else {}),
        }

    def __call__(self, path: Path) -> None:
        """Write the bi-encoder to a folder."""
        encoder = self.load()
        start_score = self.judge(encoder) if self.judge else None
        options = TrainingOptions(
            folder=scratch(path),
            seed=self.seed,
            judge=self.judge,
            precision=self.precision,
            trackers=self.trackers,
            description=f"tuning {Path(self.start.source).name} ({self.plan.objective})",
        )
        with tracked(self.trackers, Layout(path.parent).tuning_logs):
            training = tune(encoder, self.text, plan=self.plan, options=options, teachers=self._teachers())
        if start_score is not None and training.best_score is not None and start_score >= training.best_score:
            kept = "it is kept as it was" if self.keep_start else "the tuned one is kept all the same"
            logger.warning(
                "%s scored %.2f before tuning and at best %.2f after; %s",
                *(self.start.source, start_score, training.best_score, kept),
            )
            encoder = self.load() if self.keep_start else encoder
        record = TuningRecord(
            seed=self.seed,
            start_score=start_score,
            best_step=training.best_step,
            best_score=training.best_score,
            history=tuple(training.history),
        )
        card = write_tuned_card(
            self.start.source,
            sentences=len(self.text),
            plan=self.plan,
            supervised=any(map(may_know_labels, (self.start.source, *(teacher.spec for teacher in self.teachers)))),
            teachers=[teacher.spec for teacher in self.teachers],
        )
        save_trained(path, encoder, record, card=card)

    def load(self) -> BiEncoder:
        """Load the model as it is before the tuning."""
        encoder = cast(BiEncoder, self.start.load())
        check_length(encoder.model, self.plan.given_tokens, name=self.start.source)
        return encoder

    def _teachers(self) -> list[ModelRef]:
        """Return references to the teachers, which read whole texts."""
        return [
            self.start.at(teacher.spec, name=teacher.spec, pooling=None, prompts=teacher.prompts)
            for teacher in self.teachers
        ]
