"""Older models that have only pickled weights: converted once to safetensors, in a separate process, and cached.

A pickle can run code when it is read, so torch reads it with `weights_only`, which builds tensors and plain containers
and refuses everything else, and does so in another process without a network. The converted folder is named after the
checksum of the weights and says in `converted.json` what it was made from.
"""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from trans_encoder.errors import ConfigurationError
from trans_encoder.files import atomic_folder, cache_folder, sha256, write_json

logger = logging.getLogger(__name__)

WEIGHTS = "pytorch_model.bin"
"""The file that transformers and sentence-transformers used to save weights in."""
NOTE = "converted.json"
"""Says what a converted folder was made from."""
_KEPT = (".json", ".txt", ".model", ".md")


def pickled_weights(folder: Path) -> list[Path]:
    """Return the pickled weights of a model folder, if it has no others."""
    if any(folder.rglob("*.safetensors")):
        return []
    return sorted(folder.rglob(WEIGHTS))


def converted(folder: Path, *, name: str, revision: str | None = None) -> Path:
    """Return a folder with the same model in safetensors; made the first time, then kept in the cache."""
    weights = pickled_weights(folder)
    checksums = {file.relative_to(folder).as_posix(): sha256(file) for file in weights}
    key = "-".join(checksum[:12] for checksum in checksums.values())
    target = cache_folder() / "converted" / f"{Path(name).name}-{key}"
    if target.exists():
        return target
    logger.warning(
        "%s has pickled weights only (%s): converting them once to safetensors in %s",
        name,
        ", ".join(checksums),
        target,
    )
    with atomic_folder(target) as temporary:
        for file in (file for file in folder.rglob("*") if file.is_file() and file.suffix in _KEPT):
            place = temporary / file.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
        for file in weights:
            _convert(file, temporary / file.relative_to(folder).with_name("model.safetensors"), name=name)
        write_json(temporary / NOTE, {"model": name, "revision": revision, "weights": checksums})
    return target


def _convert(source: Path, target: Path, *, name: str) -> None:
    """Convert one file in another process; its last line on standard error says why it could not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    # As a file, not as a module of its package: all that it needs is torch, and -P keeps our modules out of its way.
    command = [sys.executable, "-P", __file__, str(source.resolve()), str(target)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or not target.is_file():
        reason = next(iter(done.stderr.strip().splitlines()[-1:]), f"exit code {done.returncode}")
        raise ConfigurationError(
            f"model {name}: its pickled weights ({source.name}) cannot be converted safely to safetensors: {reason}. "
            f"Give a model that has model.safetensors"
        )


def _main(arguments: Sequence[str]) -> None:
    """Read weights with `weights_only` and write them as safetensors; runs in a process of its own."""
    import pickle

    import torch
    from safetensors.torch import save_file

    source, target = arguments
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        logger.debug("%s", error)
        sys.exit("the file holds more than tensors, or is damaged; nothing in it was run")
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        sys.exit("the file does not hold a table of tensors")
    # Tensors that share storage (tied weights) are refused by safetensors, so each is written for itself.
    save_file({key: value.clone().contiguous() for key, value in state.items()}, target, metadata={"format": "pt"})


if __name__ == "__main__":
    _main(sys.argv[1:])
