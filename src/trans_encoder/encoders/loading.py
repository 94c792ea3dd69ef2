"""Where encoders come from: local folders and hub names, safetensors only, and the device they run on."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import nn

from trans_encoder.config import Kind
from trans_encoder.encoders.batching import BATCH_TOKENS
from trans_encoder.encoders.converting import WEIGHTS, converted, pickled_weights
from trans_encoder.encoders.portable import make_portable
from trans_encoder.encoders.tokens import SpecialTokens
from trans_encoder.errors import ConfigurationError
from trans_encoder.files import sha256
from trans_encoder.ranks import world_size
from trans_encoder.runner import Runner

_MODULES = {"Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "Router", "WeightedLayerPooling"}

Precision = Literal["auto", "fp32", "bf16", "fp16"]

SAFE_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
"""The files that a hub model's weights are looked for in."""

_SHOWN = 2
"""So many of a folder's models are named; of a run the two in `best`, which come first."""

_LOADING_ERRORS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    RuntimeError,
    AttributeError,
    ImportError,
    SafetensorError,
)


def checked_name(name: str | Path, *, trust_remote_code: bool) -> str:
    """Return what to load: a hub name, or a folder, converted first where its weights are pickled only.

    Missing folders, weights that cannot be converted safely and models that want to run their own code are refused.
    """
    folder = Path(name).expanduser()
    if not folder.exists():
        if _looks_like_path(str(name)):
            raise ConfigurationError(
                f"model folder {name} does not exist; give a folder that holds config.json and model.safetensors, "
                f"or a hub name such as organisation/model"
            )
        stored = _hub_pickles(str(name))
        if stored is None:
            return str(name)
        _refuse_remote_code(stored, name=name, trust_remote_code=trust_remote_code)
        return str(converted(stored, name=str(name), revision=stored.name))
    if not folder.is_dir():
        raise ConfigurationError(
            f"model {name} is a file; give the folder that holds config.json and model.safetensors"
        )
    if not any(folder.rglob("config.json")) and not (folder / "modules.json").exists():
        raise ConfigurationError(f"model folder {name} has no config.json; give a folder saved by save_pretrained")
    _refuse_remote_code(folder, name=name, trust_remote_code=trust_remote_code)
    _refuse_folder_of_models(folder)
    if any(folder.rglob("*.safetensors")):
        return str(folder)
    if pickled_weights(folder):
        return str(converted(folder, name=str(name)))
    others = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.rglob(pattern))
    found = f"only pickled weights ({', '.join(others)})" if others else "no weights"
    raise ConfigurationError(
        f"model folder {name} has {found}; expected model.safetensors, or {WEIGHTS}, which can be converted safely"
    )


def _refuse_folder_of_models(folder: Path) -> None:
    """Refuse a folder, such as a run's, that is no model but holds some."""
    if (folder / "modules.json").exists() or any(folder.glob("*.safetensors")) or (folder / WEIGHTS).exists():
        return
    inside = sorted({file.parent for file in folder.rglob("config.json") if any(file.parent.glob("*.safetensors"))})
    if inside:
        named = ", ".join(map(str, inside[:_SHOWN])) + (", ..." if len(inside) > _SHOWN else "")
        raise ConfigurationError(f"folder {folder} is no model, but holds some: {named}; give one of them")


def _refuse_remote_code(folder: Path, *, name: str | Path, trust_remote_code: bool) -> None:
    if trust_remote_code:
        return
    with explained(folder):
        configs = [(file, json.loads(file.read_text(encoding="utf-8"))) for file in folder.rglob("*config.json")]
    asking = sorted(file.relative_to(folder) for file, config in configs if "auto_map" in config)
    if asking:
        raise ConfigurationError(
            f"model folder {name} asks to run its own code (auto_map in {asking[0]}); "
            f"read that code, then allow it with --trust-remote-code (trust_remote_code=True)"
        )


def _hub_pickles(name: str) -> Path | None:
    """Return the local copy of a hub model whose main branch has pickled weights only.

    Left alone, transformers would load such a model from a branch that a bot has made: other files than those of the
    commit that a run notes.
    """
    from huggingface_hub import snapshot_download

    modules = _hub_file(name, "modules.json")
    paths = [module["path"] for module in json.loads(modules.read_text(encoding="utf-8"))] if modules else []
    places = ["", *(f"{path}/" for path in paths if path)]
    if any(_hub_file(name, f"{place}{file}") for place in places for file in SAFE_WEIGHTS):
        return None
    if not any(_hub_file(name, f"{place}{WEIGHTS}") for place in places):
        return None
    with explained(name):
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.txt", "*.model", f"*{WEIGHTS}"]))


def _hub_file(name: str, file: str) -> Path | None:
    """Return the local copy of a hub model's file, fetched if need be; None if it has none or cannot be reached."""
    from transformers.utils.hub import cached_file

    try:
        found = cached_file(
            name,
            file,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    except _LOADING_ERRORS:  # loading itself says what is wrong
        return None
    return Path(found) if found else None


def _looks_like_path(name: str) -> bool:
    drive = name[1:2] == ":"  # C:/models on Windows
    return drive or name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name or name.endswith("/")


def loading_options(path: str, *, device: str | None, trust_remote_code: bool) -> dict[str, Any]:
    """Return how a model is loaded: in full precision, from safetensors; a folder without a network."""
    return {
        "device": device or best_device(),
        "trust_remote_code": trust_remote_code,
        "local_files_only": Path(path).exists(),
        "model_kwargs": {"dtype": torch.float32, "use_safetensors": True},
    }


def check_length(model: torch.nn.Module, max_tokens: int | None, *, name: str | Path) -> None:
    """Refuse a length, if one was given, that exceeds the positions that a model has learnt."""
    limit = _learnt_positions(model)
    if limit is not None and max_tokens is not None and max_tokens > limit:
        raise ConfigurationError(
            f"model {name} takes at most {limit} tokens, but max_tokens is {max_tokens}; "
            f"longer texts are cut, so give {limit} or less (--max-tokens, --set bi.max_tokens, --set cross.max_tokens)"
        )


_NO_LIMIT, _USUAL_LENGTH = 1_000_000, 512


def _learnt_positions(model: torch.nn.Module) -> int | None:
    for place, module in model.named_modules():
        if place.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # RoBERTa and its kin begin to count after the padding's own number.
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return None


def check_layout(model: Any, *, name: str | Path) -> None:
    """Refuse models whose texts do not become tokens of a transformer, or that pool in a way of their own."""
    first, *rest = list(model)
    bodies = [route[0] for route in first.sub_modules.values()] if type(first).__name__ == "Router" else [first]
    odd = sorted({type(body).__name__ for body in bodies} - {"Transformer"})
    odd += sorted({type(module).__name__ for module in rest} - _MODULES)
    if odd:
        raise ConfigurationError(
            f"model {name} has modules that trans-encoder cannot run ({', '.join(odd)}); expected a Transformer "
            f"followed by any of {', '.join(sorted(_MODULES))}"
        )
    if any(body.tokenizer.get_vocab() != bodies[0].tokenizer.get_vocab() for body in bodies[1:]):
        raise ConfigurationError(
            f"the routes of model {name} have tokenizers of their own; expected one for all. "
            f"Save the route that you need as a model by itself"
        )


@contextmanager
def explained(name: str | Path) -> Iterator[None]:
    """Turn the many errors of loading into one that says what to do."""
    try:
        yield
    except _LOADING_ERRORS as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigurationError(
            f"model {name} could not be loaded: {reason.rstrip('.')}. Expected a folder or hub name of an encoder that "
            f"transformers knows, with safetensors weights; without a network, give a local folder"
        ) from error


def _place(name: str | Path) -> str:
    """Return a local folder, or the hub name that it is if there is none."""
    folder = Path(name).expanduser()
    return str(folder if folder.exists() else name)


def is_sentence_encoder(name: str | Path) -> bool:
    """Return whether a model already embeds sentences, or is a bare PLM that must be tuned first."""
    from sentence_transformers.util import is_sentence_transformer_model

    with explained(name):
        return bool(is_sentence_transformer_model(_place(name)))


def find_kind(name: str | Path) -> Kind:
    """Tell from a model's files, in a folder or on the hub, whether it is a bi-encoder or a cross-encoder."""
    kind = _settings(name, "config_sentence_transformers.json").get("model_type")
    if kind == "CrossEncoder":
        return "cross"
    if kind == "SentenceTransformer" or is_sentence_encoder(name):
        return "bi"
    architectures = _settings(name, "config.json").get("architectures") or [""]
    return "cross" if str(architectures[0]).endswith("ForSequenceClassification") else "bi"


def _settings(name: str | Path, file: str) -> dict[str, Any]:
    """Return a model's JSON file, empty if it has none."""
    from transformers.utils.hub import cached_file

    with explained(name):
        found = cached_file(_place(name), file, _raise_exceptions_for_missing_entries=False)
        return dict(json.loads(Path(found).read_text(encoding="utf-8"))) if found else {}


def parameter_count(name: str | Path) -> int | None:
    """Return how many parameters a model's body has, from its configuration alone; None if that does not tell."""
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(_place(name), trust_remote_code=False)
        with torch.device("meta"):
            body: Any = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    except _LOADING_ERRORS:
        return None
    return int(sum(parameter.numel() for parameter in body.parameters()))


def fingerprint(name: str | Path) -> dict[str, str]:
    """Return the checksums of a local model's files, or a hub name with the commit that its weights come from."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        kept = (".json", ".safetensors", ".onnx", ".txt", ".model")
        files = {path for path in folder.rglob("*") if path.suffix in kept} | {*pickled_weights(folder)}
        return {path.relative_to(folder).as_posix(): sha256(path) for path in sorted(files)}
    # Fetched if need be, so that a run knows the commit from its beginning.
    pickles = _hub_pickles(str(name))
    if pickles is not None:
        weights = {path.relative_to(pickles).as_posix(): sha256(path) for path in pickled_weights(pickles)}
        return {"hub": str(name), "revision": pickles.name, **weights}
    stored = next(filter(None, (_hub_file(str(name), file) for file in (*SAFE_WEIGHTS, "config.json"))), None)
    return {"hub": str(name), **({"revision": stored.parent.name} if stored else {})}


def best_device() -> str:
    """Return the fastest device of this machine: this process's GPU, Apple's, or the CPU."""
    if torch.cuda.is_available():
        mine = int(os.environ.get("LOCAL_RANK", "0")) if world_size() > 1 else torch.cuda.current_device()
        return f"cuda:{mine % torch.cuda.device_count()}"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def resolved_precision(precision: Precision, device: torch.device) -> Precision:
    """Choose half precision by what the device can do; never on a CPU, where it is slower by far."""
    if precision != "auto":
        return precision
    if device.type != "cuda":
        return "fp32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16"
    return "fp16" if torch.cuda.get_device_capability(device) >= (7, 0) else "fp32"


def check_precision(precision: Precision, device: str) -> None:
    """Refuse a number format that the device cannot train in, before any work is done."""
    chosen = best_device() if device == "auto" else device
    if precision == "fp16" and torch.device(chosen).type == "cpu":
        raise ConfigurationError(
            "precision is fp16, but the run is on a CPU, which cannot train in it; "
            "give --set precision=auto (fp32 on a CPU), fp32 or bf16"
        )


@contextmanager
def inference(module: torch.nn.Module, device: torch.device, *, precision: Precision) -> Iterator[None]:
    """Run without gradients or dropout, in the given number format; the module's mode is put back after."""
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(resolved_precision(precision, device))
    training = module.training
    module.eval()
    try:
        with torch.inference_mode(), torch.autocast(device.type, dtype=half, enabled=half is not None):
            yield
    finally:
        module.train(training)


def set_dropout(model: nn.Module, rate: float) -> None:
    """Give every dropout of a model this rate, its attention's too; what is saved of the model stays as it was.

    Some models keep rates as plain numbers, for `functional.dropout`: `dropout` in T5 and Longformer,
    `attention_dropout` in ModernBERT, `hidden_dropout_prob` and the like elsewhere.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, int | float) and not isinstance(value, bool):
                setattr(module, name, rate)


class Loaded:
    """What bi- and cross-encoders share: a sentence-transformers model under a name."""

    model: Any
    precision: Precision = "fp32"
    """Number format of scoring: full, so that figures can be compared; a run sets its own."""

    def __init__(self, model: Any, *, name: str, texts: int, runner: Runner) -> None:
        """Wrap a loaded model whose inputs are of one or two texts."""
        self.model, self.name, self.runner = model, name, runner
        self.layout = SpecialTokens.of(model.tokenizer, texts=texts)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return torch.device(self.model.device)

    @property
    def batch_tokens(self) -> int:
        """Tokens of a batch in scoring, padding included."""
        return BATCH_TOKENS[self.device.type]

    @property
    def max_tokens(self) -> int:
        """Longest input (a sentence, or a pair) in tokens, special ones included."""
        own = int(self.model.max_seq_length or _USUAL_LENGTH)
        if own > _NO_LIMIT:  # what transformers gives to a tokenizer that names no length
            own = _USUAL_LENGTH
        # RoBERTa's configuration counts two positions more than can be used; a length taken from it would fail.
        return min(own, _learnt_positions(self.model) or own)

    @property
    def token_limit(self) -> int:
        """Longest input that the model could take at all: its positions, learnt or not, else its own length."""
        learnt = _learnt_positions(self.model)
        if learnt is not None:
            return learnt
        configs = (getattr(module, "config", None) for module in self.model.modules())
        named = (getattr(config, "max_position_embeddings", None) for config in configs)
        return max((limit for limit in named if isinstance(limit, int)), default=0) or self.max_tokens

    def fingerprint(self) -> dict[str, str]:
        """Tell apart the model that was loaded from others."""
        return fingerprint(self.name)

    def save(self, folder: Path) -> None:
        """Save as a folder for sentence-transformers 3.0 and later: the same bytes whatever the model did before."""
        backend = getattr(self.model.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            # Fast tokenizers remember how they last cut and padded, and would save it.
            backend.no_truncation()
            backend.no_padding()
        self.model.save_pretrained(str(folder), create_model_card=False)
        make_portable(folder, self.model)
