"""What `train` and `check` share: from a TOML file and flags to a configuration, pairs or text, dev and test sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from trans_encoder.cli.groups import JobOptions
from trans_encoder.cli.reading import Reading, TextReading
from trans_encoder.config import EngineConfig, Inputs, RunConfig, load_config, parse_overrides
from trans_encoder.data import TASKS, PairSet, Task, TestSet, Text, load_task
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.mining import Mix
from trans_encoder.pipelines.from_text import MINED_PAIRS, TextOptions


@dataclass(frozen=True)
class Job:
    """Everything that a run needs, read and checked."""

    config: RunConfig
    engine: EngineConfig
    source: PairSet | Text
    """The pairs to learn from, or raw text to mine them from."""
    origin: str
    """Where the pairs come from."""
    mining: TextOptions
    """How pairs are mined from raw text."""
    dev: TestSet | None
    tests: Mapping[str, TestSet]
    out: Path | None

    @property
    def run_folder(self) -> Path:
        """Where the run goes; an error if it was not said."""
        if self.out is None:
            raise ConfigurationError("no run folder; give --out RUN")
        return self.out

    @property
    def count(self) -> int:
        """How many pairs there are, or will be mined."""
        return self.mining.pairs if isinstance(self.source, Text) else len(self.source)


def read_job(options: JobOptions) -> Job:
    """Resolve a TOML file, flags over it and `--set` over both, and read what they name."""
    job = load_config(options.config, options.settings() | parse_overrides(options.assignments or []))
    inputs, config = job.inputs, _with_members(job.run, options)
    if [inputs.pairs, inputs.task, inputs.text].count(None) != 2:
        raise ConfigurationError("give what to learn from, one of --pairs FILE, --task NAME or --text PATH")
    if inputs.text is None:
        for option, value in (("--remine", inputs.remine), ("--mix", inputs.mix), ("--objective", inputs.objective)):
            if value:
                raise ConfigurationError(f"{option} is for raw text; give --text PATH, or leave it out")
    reading, data_dir = Reading(inputs.columns, inputs.skip_bad), inputs.data_dir
    source: PairSet | Text
    task = None
    if inputs.task is not None:
        task = load_task(inputs.task, data_dir=data_dir, inductive=inputs.inductive)
        source, origin = task.pairs, f"task {task.name}"
        if not task.symmetric and "both_orders" not in config.model_fields_set:
            config = config.model_copy(update={"both_orders": False})
    elif inputs.text is not None:
        origin = f"raw text {inputs.text}"
        layout = TextReading(inputs.line, inputs.column, inputs.language)
        source = layout.read(Path(inputs.text), skip_bad=inputs.skip_bad)
        if len(source) < 2:
            raise DataError(f"{origin} has {len(source)} sentence; pairs are mined from at least 2, better thousands")
    else:
        origin = str(inputs.pairs)
        source = reading.pairs(origin)
    if isinstance(source, PairSet) and inputs.max_pairs is not None and inputs.max_pairs < len(source):
        source = source.sample(inputs.max_pairs, seed=config.seed)
    mix = None if inputs.mix is None else Mix.parse(inputs.mix)
    return Job(
        config=config,
        engine=job.engine,
        source=source,
        origin=origin,
        mining=TextOptions(inputs.max_pairs or MINED_PAIRS, mix, inputs.remine, inputs.objective),
        dev=_dev_set(inputs, task, reading),
        tests=_test_sets(inputs.test, data_dir=data_dir, reading=reading),
        out=None if inputs.out is None else Path(inputs.out),
    )


def _with_members(config: RunConfig, options: JobOptions) -> RunConfig:
    """Give the members the prompts and the pooling of the command line, which go over those of the file."""
    chosen = {} if options.pooling is None else {"pooling": options.pooling}
    members = [
        member.model_copy(
            update={**chosen, **{f"prompt{side}": text for side, text in enumerate(sides, start=1) if text}}
        )
        for member, sides in zip(config.members, options.prompts.choose(len(config.members)), strict=True)
    ]
    return config.model_copy(update={"members": tuple(members)})


def placeholder_pairs(text: Text, *, count: int) -> PairSet:
    """Pair sentences of a text with their first successors, then the second ones and so on: no pair comes twice."""
    size = len(text)
    rounds, first = np.divmod(np.arange(min(count, size * (size - 1) // 2)), size)
    left, right = (text.sentences.take(pa.array(part)) for part in (first, (first + rounds + 1) % size))
    return PairSet.from_table(pa.table({"sentence1": left, "sentence2": right}))


def _dev_set(inputs: Inputs, task: Task | None, reading: Reading) -> TestSet | None:
    """Find the dev set: a file, a task's, or the training task's own; "none" is none."""
    if inputs.dev is None:
        return task.dev if task else None
    if inputs.dev == "none":
        return None
    if not _is_task(inputs.dev, option="--dev"):
        return replace(reading.test_set(inputs.dev), name="dev")
    named = task if task and task.name == inputs.dev else load_task(inputs.dev, data_dir=inputs.data_dir)
    if named.dev is None:
        raise ConfigurationError(f"task {named.name} has no dev set; give --dev FILE or another task")
    return named.dev


def _test_sets(names: Sequence[str], *, data_dir: str | None, reading: Reading) -> Mapping[str, TestSet]:
    found: dict[str, TestSet] = {}
    for name in dict.fromkeys(names):
        if _is_task(name, option="--test"):
            tests = load_task(name, data_dir=data_dir, tests_only=True).tests
        else:
            read = reading.test_set(name)
            tests = {read.name: read}
        if twice := sorted(tests.keys() & found.keys()):
            raise ConfigurationError(f"--test {name}: there is another test set called {twice[0]}; rename one of them")
        found |= tests
    return found


def _is_task(name: str, *, option: str) -> bool:
    if name in TASKS:
        return True
    if not Path(name).exists():
        raise ConfigurationError(f"{option} {name} is neither a file nor a task; the tasks are {', '.join(TASKS)}")
    return False
