"""The options that several commands share."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trans_encoder.config import PoolingMode, parse_overrides
from trans_encoder.errors import ConfigurationError

if TYPE_CHECKING:
    from trans_encoder.encoders import Encoder
    from trans_encoder.evaluation.ensembles import Ensemble


def as_text(given: str | list[str] | None) -> str | list[str] | None:
    """Read an argument as UTF-8: in the locale C, Python keeps its bytes as surrogates, which no tokenizer takes."""
    if not isinstance(given, str):
        return given and [str(as_text(each)) for each in given]
    try:
        return os.fsencode(given).decode()
    except UnicodeEncodeError:
        return given
    except UnicodeDecodeError:
        raise ConfigurationError(f"{given!a} is not UTF-8; give the text in this encoding") from None


Models = Annotated[list[str], typer.Argument(metavar="MODEL...", help="Folders or hub names; several are an ensemble.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A folder or hub name.")]
KindOption = Annotated[Literal["bi", "cross"] | None, typer.Option(help="What the model is, if its files do not tell.")]
Pooling = Annotated[
    PoolingMode | None, typer.Option(help="How bi-encoders make one embedding of a text's tokens, if not as they say.")
]
MaxTokens = Annotated[
    int | None, typer.Option(metavar="N", min=3, help="Cut longer inputs; by default, as models say.")
]
PromptOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME|TEXT",
        callback=as_text,
        help="Put this before the texts of bi-encoders: a prompt's name, a text or none. Repeat it for each model.",
    ),
]
Prompt1 = Annotated[
    list[str] | None, typer.Option(metavar="NAME|TEXT", callback=as_text, help="The same, of the first texts alone.")
]
Prompt2 = Annotated[
    list[str] | None, typer.Option(metavar="NAME|TEXT", callback=as_text, help="The same, of the second texts alone.")
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Let models that ask for it run their own code.")
]
DataDir = Annotated[Path | None, typer.Option(help="Folder of local task data; without it, tasks come from the hub.")]
Pairs = Annotated[Path, typer.Option(metavar="FILE", help="Pairs: JSONL, TSV, CSV, Parquet, .gz too.")]
Columns = Annotated[
    str | None,
    typer.Option(metavar="A,B[,SCORE]", callback=as_text, help="The columns of the pairs, if they are not found."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, such as cross.learning_rate=1e-4; repeatable."),
]
PlanSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, such as learning_rate=1e-4; repeatable."),
]
DevFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Labelled pairs that choose the best checkpoint.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out lines that cannot be read, and say how many.")]
EngineName = Annotated[
    Literal["local", "ray"] | None,
    typer.Option(help="Where the work is done: on this machine, or as tasks of a Ray cluster."),
]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Local processes side by side; by default one for each CUDA device.")
]
RayAddress = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The Ray cluster; auto on one of its machines.")
]


def choose_prompts(
    count: int,
    *,
    prompt: Sequence[str] | None = None,
    prompt1: Sequence[str] | None = None,
    prompt2: Sequence[str] | None = None,
) -> list[tuple[str | None, str | None]]:
    """Return the prompts of both sides for each model: what is given once holds for all of them."""

    def for_each(option: str, given: Sequence[str] | None) -> list[str | None]:
        if not given:
            return [None] * count
        if not all(text.strip() for text in given):
            raise ConfigurationError(f'{option} is empty; give the name of a prompt, a text such as "query: ", or none')
        if len(given) not in (1, count):
            raise ConfigurationError(
                f"{option} is given {len(given)} times for {count} models; give it once or {count} times"
            )
        return list(given) if len(given) == count else [given[0]] * count

    both = for_each("--prompt", prompt)
    first, second = for_each("--prompt1", prompt1), for_each("--prompt2", prompt2)
    return [
        (shared if own1 is None else own1, shared if own2 is None else own2)
        for shared, own1, own2 in zip(both, first, second, strict=True)
    ]


@dataclass(frozen=True)
class PromptOptions:
    """What is put before texts."""

    prompt: PromptOption = None
    prompt1: Prompt1 = None
    prompt2: Prompt2 = None

    def choose(self, count: int) -> list[tuple[str | None, str | None]]:
        """Return the prompts of both sides for each of several models."""
        return choose_prompts(count, prompt=self.prompt, prompt1=self.prompt1, prompt2=self.prompt2)


@dataclass(frozen=True)
class Loading:
    """How a command loads the models that it was given."""

    kind: KindOption = None
    pooling: Pooling = None
    prompts: PromptOptions = field(default_factory=PromptOptions)
    max_tokens: MaxTokens = None
    trust_remote_code: TrustRemoteCode = False

    def load(self, models: Sequence[str]) -> list["Encoder | Ensemble"]:
        """Load models and saved ensembles; pooling and prompts go to bi-encoders."""
        from trans_encoder.evaluation.ensembles import Ensemble, is_ensemble

        plain = [model for model in models if not is_ensemble(model)]
        encoders = dict(zip(plain, self.load_encoders(plain), strict=True)) if plain else {}
        trust = self.trust_remote_code
        return [
            encoders[model] if model in encoders else Ensemble.open(model, trust_remote_code=trust) for model in models
        ]

    def load_encoders(self, models: Sequence[str]) -> list["Encoder"]:
        """Load the models; in an ensemble of both kinds, pooling and prompts go to its bi-encoders."""
        from trans_encoder.encoders import find_kind, load_encoder

        kinds = [self.kind or find_kind(model) for model in models]
        mixed = "bi" in kinds
        return [
            load_encoder(
                model,
                kind=kind,
                pooling=None if kind == "cross" and mixed else self.pooling,
                prompts=None if sides == (None, None) or (kind == "cross" and mixed) else sides,
                max_tokens=self.max_tokens,
                trust_remote_code=self.trust_remote_code,
            )
            for model, kind, sides in zip(models, kinds, self.prompts.choose(len(models)), strict=True)
        ]


def read_settings(
    assignments: Sequence[str] | None, *, options: Sequence[str], others: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Read what was given with `--set`; refuse what has an option, of the same name or as told in `others`."""
    settings = parse_overrides(assignments or [])
    told = {name: f"--{name.replace('_', '-')}" for name in options} | dict(others or {})
    taken = [f"--set {name}=...: give {option} instead" for name, option in told.items() if name in settings]
    if taken:
        raise ConfigurationError("\n".join(taken))
    return settings
