"""`distil`: one function for every source of pairs."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from trans_encoder.config import MemberConfig, TeacherConfig, make_config
from trans_encoder.data import PairSet, Task, TestSet, Text
from trans_encoder.distill.judges import DevJudge
from trans_encoder.distill.run import Result, run
from trans_encoder.errors import ConfigurationError
from trans_encoder.pipelines.from_text import TextOptions, prepare
from trans_encoder.runs import Engine
from trans_encoder.teachers import ScoreFunction, Teacher, name_functions

Source = PairSet | Text | Task
"""What to learn from."""


def distil(
    source: Source,
    models: str | MemberConfig | Sequence[str | MemberConfig],
    *,
    out: str | Path,
    teachers: Sequence[str | TeacherConfig | ScoreFunction | Teacher] = (),
    preset: str = "small",
    dev: TestSet | PairSet | Literal["none"] | None = None,
    engine: Engine | None = None,
    **overrides: Any,
) -> Result:
    """Let bi- and cross-encoders teach each other on unlabelled pairs; one model is self-distillation.

    The source is a `PairSet`; a `Task`, whose dev set chooses the checkpoints unless `dev` is another one or "none"; or
    raw `Text`, from which `pairs` (10,000) are mined in a `mix`, again for later cycles with `remine`. A model that
    does not embed sentences yet is first tuned on the text by an `objective` and stays its cross-encoders' PLM.

    A model is `BI`, `BI=PLM` or a MemberConfig. Teachers beside them are never trained: each is a model's name,
    `lexical`, `bm25`, `tokens`, a file of scores, any of these with `=WEIGHT`, a TeacherConfig, an object with a
    method `score`, or a function that takes a list of pairs and returns their scores. Overrides are fields of
    RunConfig, nested or dotted: `cycles=1, cross={"epochs": 2}`. If `out` holds an unfinished run of the same settings
    and inputs, it is continued.
    """
    of_text = {field.name: overrides.pop(field.name) for field in fields(TextOptions) if field.name in overrides}
    if of_text and not isinstance(source, Text):
        raise ConfigurationError(f"{', '.join(of_text)}: only for raw text; give a Text as the source, or leave it out")
    if isinstance(source, Task) and not source.symmetric:
        overrides.setdefault("both_orders", False)
    team = [models] if isinstance(models, str | MemberConfig) else list(models)
    named = name_functions(teachers)
    config = make_config(team, preset=preset, overrides={**overrides, "teachers": named.teachers})
    pairs_or_text = source.pairs if isinstance(source, Task) else source
    ready = prepare(config, pairs_or_text, out=out, options=TextOptions(**of_text))
    test = _dev_set(source, dev)
    return run(
        ready.config,
        ready.pairs,
        out=out,
        judge=DevJudge(test) if test else None,
        miner=ready.miner,
        engine=engine,
        functions=named.functions,
    )


def _dev_set(source: Source, dev: TestSet | PairSet | Literal["none"] | None) -> TestSet | None:
    """Return the dev set that was given, else the task's own."""
    if dev == "none":
        return None
    if dev is None:
        return source.dev if isinstance(source, Task) else None
    return TestSet("dev", dev) if isinstance(dev, PairSet) else dev
