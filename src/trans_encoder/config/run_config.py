"""The configuration of a run: pydantic models, TOML files and overrides; every problem reported at once."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, cast

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from trans_encoder.config.participants import FUNCTION, MemberConfig, TeacherConfig, free_name, names_device
from trans_encoder.config.plans import Frozen, Kind, TrainingPlan
from trans_encoder.config.presets import PRESETS, Preset
from trans_encoder.errors import ConfigurationError

Layer = Mapping[str, Any]
Scale = Literal["none", "rank", "z"]

_RESERVED = {"sentence1", "sentence2", "score", "pairs"}  # columns of label files; mined pairs beside members' folders
_PATTERNS = {
    "device": "auto, cpu, mps, cuda or cuda:N",
    "name": "up to 64 letters, digits, dots, underscores and hyphens, the first a letter or a digit, the last no dot",
}


class RunConfig(Frozen):
    """Everything that decides a run, apart from its pairs and its dev set."""

    members: tuple[MemberConfig, ...] = Field(min_length=1)
    """The team; one member is self-distillation, more are mutual distillation (section 2.4)."""
    teachers: tuple[TeacherConfig, ...] = ()
    """Frozen scorers that take part in every labelling: models, lexical, bm25, tokens, files of scores, functions."""
    lexical: bool | None = None
    """Whether shared wording teaches, too (the teacher lexical). If not given, only where no teacher is given and every
    start was made without labels."""
    ask: float = Field(default=1.0, gt=0, le=1)
    """Share of the pairs that teachers which cost much (cross-encoders, Python functions) are asked about: those that
    the other teachers disagree on most."""
    scale: Scale | None = None
    """How scores are brought to one scale before they are averaged: none (the paper's plain mean), rank or z. If not
    given, rank where there are several members or teachers, else none."""
    directions: int | None = Field(default=None, ge=0)
    """Common directions of a start's embeddings, with their mean, that are removed before it labels and learns; the
    delivered bi-encoder has a module that does so. If not given, 0 where a start may have been trained on labels,
    else 3."""
    merge: float | None = Field(default=None, gt=0, le=1)
    """Share of the student in the weights of a new bi-encoder, or of a cross-encoder that began as a re-ranker; the
    rest is the start's. If not given, 1, but 0.75 where a start may have been trained on labels and `in_batch` does not
    hold it."""
    in_batch: float | None = Field(default=None, ge=0)
    """Weight of a second loss of bi-encoders beside that of the pairs: the cosines of every two sentences of a batch
    follow those of the starts and of the teachers that are bi-encoders. If not given, 10 where a start may have been
    trained on labels and others can teach it, else 0."""
    both_orders_labels: bool = True
    """Cross-encoders label every pair in both orders, and the two scores are averaged; needs both_orders."""
    passes: int = Field(default=0, ge=0)
    """Members label this many times with dropout, and each pair gets the mean; 0: once, without dropout."""
    calibrate: bool = True
    """A cross-encoder that begins with a head has it calibrated to the labels' scale before it is trained."""
    keep_agreed: float = Field(default=1.0, gt=0, le=1)
    """Share of the pairs that students learn from: those on which the teachers agree most."""
    hard_pairs: float = Field(default=0.0, ge=0, le=1)
    """Flips (negations, other numbers, names and units, swapped roles) with lower labels, and paraphrases with high
    ones, that rules make for cross-encoders to learn: the number of each as a share of the pairs. English only."""
    preset: Preset = "small"
    """The preset that every setting not given comes from."""
    seed: int = Field(default=42, ge=0, lt=2**32)
    """Decides new weights, the order of the pairs and dropout."""
    cycles: int = Field(gt=0)
    """How often the bi-encoders and the cross-encoders teach each other."""
    first_share: float = Field(default=1.0, gt=0, le=1)
    """Share of the pairs, a random sample, that the first cycle learns from; later cycles learn from all. A small first
    cycle is done soon, and its students are better teachers than the starts. Not with one cycle or remine."""
    strategy: Literal["refresh", "sequential", "sequential-ensemble"] = "refresh"
    """Students start from the original weights (refresh) or from their teacher's (sequential); sequential-ensemble:
    members learn one after the other in every cycle, each from the one before it, instead of from the team's mean."""
    formulation: Literal["alternate", "bi"] = "alternate"
    """alternate: bi- and cross-encoders in turn; bi: standard self-distillation, bi-encoders all along."""
    both_orders: bool = True
    """Cross-encoders see every pair in both orders; switch off where the order matters, as in QNLI."""
    supervised: bool | None = None
    """Whether members that do not say so themselves were trained on labels; found out if not given."""
    anchor: float | None = Field(default=None, ge=0, lt=1)
    """Weight of the first labels, those of the starts and the frozen teachers, in all later ones: 0 is the paper's
    method. If not given, 0, but 0.7 where a start may have been trained on labels, which then also learns in small
    steps."""
    selection: Literal["label-free", "last"] = "label-free"
    """What compares cycles with the start without a dev set: signals that need no labels, or nothing (last)."""
    patience: int = Field(default=1, ge=0)
    """Stop after this many cycles in a row without a gain for any member; 0: never before the last cycle."""
    cross: TrainingPlan
    """How cross-encoders are trained."""
    bi: TrainingPlan
    """How bi-encoders are trained."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of training and of the labels; auto takes the best that the device has."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """auto, cpu, mps, cuda or cuda:N."""
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Experiment trackers to switch on; they write to the folder logs of the run, one folder for each training."""
    trust_remote_code: bool = False
    """Let models that ask for it run their own code."""
    fast: bool = Field(default=True, exclude=True)
    """Use the CPU speed-ups. They change results by rounding only, so a run may be continued with the other setting."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of encoders that are trained."""
        return ("bi",) if self.formulation == "bi" else ("bi", "cross")

    @property
    def given_device(self) -> str | None:
        """The device that was given; None where the best one is taken."""
        return None if self.device == "auto" else self.device

    @property
    def fast_option(self) -> bool | None:
        """`fast` as encoders take it: None leaves the choice to the environment."""
        return None if self.fast else False

    def member(self, name: str) -> MemberConfig:
        """Return the member of a name."""
        return next(member for member in self.members if member.name == name)

    def plan(self, kind: Kind, member: str) -> TrainingPlan:
        """Return how a member's encoders of a kind are trained."""
        if kind == "cross":
            return self.cross
        return self.bi.model_copy(update={"learning_rate": self.member(member).learning_rate or self.bi.learning_rate})

    @field_validator("trackers", mode="before")
    @classmethod
    def _several(cls, trackers: Any) -> Any:
        return trackers.split(",") if isinstance(trackers, str) else trackers

    @field_validator("members", "teachers", mode="before")
    @classmethod
    def _parsed(cls, given: Any, info: ValidationInfo) -> Any:
        kind = MemberConfig if info.field_name == "members" else TeacherConfig
        if isinstance(given, str | Mapping | MemberConfig | TeacherConfig):
            given = [given]
        if not isinstance(given, Sequence):
            return given
        return [kind.parse(each) if isinstance(each, str) else each for each in given]

    @field_validator("members")
    @classmethod
    def _named(cls, members: tuple[MemberConfig, ...]) -> tuple[MemberConfig, ...]:
        given = [member.name.lower() for member in members if member.name]
        if len(set(given)) < len(given):
            raise ValueError(f"names must differ (upper and lower case are the same), given {', '.join(given)}")
        if refused := sorted(name for name in given if name in _RESERVED or names_device(name)):
            raise ValueError(f"a member may not be called {', '.join(refused)}")
        return _with_names(members, {*given, *_RESERVED})

    @model_validator(mode="after")
    def _teachers_named(self) -> Self:
        """Name the teachers, apart from the members and from each other: each has a column in the labels."""
        taken = {*_RESERVED, *(str(member.name).lower() for member in self.members)}
        given = [teacher.name.lower() for teacher in self.teachers if teacher.name]
        if len(set(given)) < len(given) or taken.intersection(given):
            raise ValueError(f"teachers are named {', '.join(given)}: names must differ, also from those of members")
        # Frozen, but not yet handed out.
        object.__setattr__(self, "teachers", _with_names(self.teachers, taken.union(given)))
        return self


Participant = TypeVar("Participant", MemberConfig, TeacherConfig)


def _with_names(participants: Iterable[Participant], taken: set[str]) -> tuple[Participant, ...]:
    """Give those without a name one that is not taken yet, made from their model."""
    named = []
    for each in participants:
        model = each.bi if isinstance(each, MemberConfig) else each.spec.removeprefix(FUNCTION)
        name = each.name or free_name(model, taken)
        taken.add(name.lower())
        named.append(each.model_copy(update={"name": name}))
    return tuple(named)


class Inputs(Frozen):
    """Where a run's inputs and outputs are; the [inputs] table of a TOML file."""

    pairs: str | None = None
    """A file of sentence pairs."""
    text: str | None = None
    """A file or folder of raw text, from which pairs are mined."""
    line: Literal["sentence", "document", "wrapped"] | None = None
    """What a line of the text is, if its kind of file does not tell."""
    column: str | None = None
    """The column of the text in a table, if it is not found."""
    language: str = "en"
    """Helps to split the text into sentences."""
    mix: str | None = None
    """Shares of near, middle, far and random pairs and of parts among the mined ones, such as "1,0,0,1,6"."""
    objective: Literal["simcse", "mirror", "similarities"] | None = None
    """How a bare PLM is tuned on the text first: views by dropout (simcse), masked views (mirror), or the similarities
    that the run's bi-encoder teachers see (similarities). If not given, similarities with such teachers, else
    simcse."""
    remine: bool = False
    """Mine new pairs from the text for every later cycle, with the bi-encoders of the cycle before."""
    task: str | None = None
    """A task whose pool of pairs is used."""
    dev: str | None = None
    """A labelled file, or the task whose dev set chooses the checkpoints."""
    test: tuple[str, ...] = ()
    """Labelled files or tasks that the start and the result are compared on; one or a list."""
    columns: str | None = None
    """The columns of files of pairs, A,B or A,B,SCORE, if they are not found."""
    skip_bad: bool = False
    """Leave out lines that cannot be read, and say how many."""
    data_dir: str | None = None
    """A folder of local task data."""
    inductive: bool = False
    """Keep the task's test pairs out of the training pool."""
    max_pairs: int | None = Field(default=None, gt=1)
    """Number of pairs to learn from: a random sample, drawn with the run's seed, or mined."""
    out: str | None = None
    """The run folder."""

    @field_validator("test", mode="before")
    @classmethod
    def _several(cls, test: Any) -> Any:
        return [test] if isinstance(test, str) else test


class EngineConfig(Frozen):
    """Where the stages of a run are done; the [engine] table of a TOML file. The result is the same."""

    name: Literal["local", "ray"] = "local"
    """local: on this machine; ray: as tasks of a Ray cluster."""
    workers: int | None = Field(default=None, gt=0)
    """Local processes side by side; one for each CUDA device if not given, and on a CPU one."""
    ray_address: str | None = Field(default=None, min_length=1)
    """The cluster: HOST:PORT, or auto on one of its machines; a Ray of this machine's own if not given."""
    num_cpus: float = Field(default=1.0, ge=0)
    """CPUs that each Ray task takes."""
    num_gpus: float | None = Field(default=None, ge=0)
    """GPUs that each Ray task takes; 1 if not given and the cluster has any, 0 on the device cpu."""

    @model_validator(mode="after")
    def _one_engine(self) -> Self:
        if self.name == "local" and self.ray_address is not None:
            raise ValueError("ray_address is given, but the engine is local; add --engine ray")
        if self.name == "ray" and self.workers is not None:
            raise ValueError("workers are local processes; for Ray set num_cpus and num_gpus instead")
        return self


class JobConfig(Frozen):
    """A whole TOML file: the inputs, the engine and the run."""

    inputs: Inputs = Inputs()
    engine: EngineConfig = EngineConfig()
    run: RunConfig


def make_config(
    models: Sequence[str | MemberConfig], *, preset: str = "small", overrides: Layer | None = None
) -> RunConfig:
    """Resolve a preset and overrides (nested or dotted keys) into a configuration."""
    return _resolve({"members": list(models), "preset": preset}, overrides or {}).run


def load_config(path: str | Path | None = None, overrides: Layer | None = None) -> JobConfig:
    """Read a TOML file, if given, put the overrides (nested or dotted keys) over it and the preset under it."""
    return _resolve(_read_toml(Path(path)) if path is not None else {}, overrides or {})


def parse_overrides(assignments: Iterable[str]) -> dict[str, Any]:
    """Read `key=value` texts such as `cross.learning_rate=1e-4`; values are TOML, anything else is a string."""
    overrides: dict[str, Any] = {}
    wrong = []
    for assignment in assignments:
        key, found, value = assignment.partition("=")
        if not found or not key.strip():
            wrong.append(f'  "{assignment}": must be key=value, such as cross.learning_rate=1e-4')
        overrides[key.strip()] = _parse_value(value.strip())
    if wrong:
        raise ConfigurationError(_summary(wrong))
    return overrides


def _resolve(*layers: Layer) -> JobConfig:
    settings: dict[str, Any] = {}
    clashes: list[str] = []
    for layer in layers:
        _merge(settings, layer, clashes)
    preset = settings.get("preset", "small")
    base: dict[str, Any] = {}
    _merge(base, PRESETS.get(preset, PRESETS["small"]) if isinstance(preset, str) else PRESETS["small"], clashes)
    _merge(base, settings, clashes)
    inputs, engine = base.pop("inputs", {}), base.pop("engine", {})
    try:
        job = JobConfig.model_validate({"inputs": inputs, "engine": engine, "run": base})
    except ValidationError as error:
        # A list whose items are wrong is also "too short"; once is enough.
        clashes += [_explain(each) for each in error.errors() if each["type"] != "too_short" or not each["input"]]
    if clashes:
        raise ConfigurationError(_summary(clashes))
    return job


def _merge(settings: dict[str, Any], layer: Layer, clashes: list[str]) -> None:
    """Put a layer over settings; dotted keys and nested tables are the same."""
    for key, value in layer.items():
        *tables, last = str(key).split(".")
        place = settings
        for table in tables:
            inner = place.setdefault(table, {})
            if not isinstance(inner, dict):
                clashes.append(f"  {key}: {table} is not a table")
                break
            place = inner
        else:
            if isinstance(value, Mapping) and isinstance(place.get(last, {}), dict):
                _merge(place.setdefault(last, {}), cast(Layer, value), clashes)
            else:
                place[last] = value.model_dump() if isinstance(value, TrainingPlan) else value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read the configuration {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # broken UTF-8 and numbers of thousands of digits among them
        raise ConfigurationError(f"{path} is not a TOML file: {error}; see https://toml.io for the format") from error


def _parse_value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if list(parsed) == ["value"] else text


def _explain(problem: Mapping[str, Any]) -> str:
    """Name the key, what was given and what is allowed."""
    parts = [str(part) for part in problem["loc"]]
    key = ".".join(parts[1:] if parts[:1] == ["run"] else parts)
    match problem["type"]:
        case "extra_forbidden":
            close = get_close_matches(key, sorted(_keys()), n=1, cutoff=0.5)
            return f"  {key}: unknown key" + (f'; did you mean "{close[0]}"?' if close else "")
        case "missing":
            return f"  {key}: must be given"
        case "value_error":
            return f"  {key}: {problem['msg'].removeprefix('Value error, ')}"
        case "too_short" | "string_too_short":
            allowed = "must not be empty"
        case "string_pattern_mismatch":
            allowed = f"must be {_PATTERNS[parts[-1]]}"
        case "model_type":
            allowed = "must be a table of settings"
        case _:
            allowed = problem["msg"].replace("Input should be", "must be")
    return f"  {key}: given {problem['input']!r}, {allowed}"


def _keys() -> set[str]:
    """Every dotted key that a configuration may have."""
    tables: dict[str, type[Frozen]] = {"": RunConfig, "inputs.": Inputs, "cross.": TrainingPlan, "bi.": TrainingPlan}
    tables |= {"members.": MemberConfig, "teachers.": TeacherConfig, "engine.": EngineConfig}
    return {"inputs", "engine"} | {prefix + name for prefix, model in tables.items() for name in model.model_fields}


def _summary(problems: list[str]) -> str:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    # A value may fill the screen, and what is allowed stands after it.
    short = (each if len(each) <= 600 else f"{each[:400]} ... {each[-200:]}" for each in problems)
    return "\n".join([f"{count} in the configuration:", *short])
