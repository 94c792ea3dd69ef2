"""The environment of a run: versions, platform and device."""

import json
import logging
import platform
from importlib.metadata import version
from pathlib import Path

from trans_encoder.files import write_json
from trans_encoder.ranks import is_first_rank
from trans_encoder.runs.differences import differences

logger = logging.getLogger(__name__)

_LIBRARIES = ("trans-encoder", "torch", "transformers", "sentence-transformers", "tokenizers", "numpy", "pyarrow")


def note_environment(path: Path, *, device: str) -> None:
    """Write what a run runs on; warn if that changed since it began, because results may then differ."""
    if not is_first_rank():
        return
    libraries = {name: version(name) for name in _LIBRARIES}
    now = {"python": platform.python_version(), "platform": platform.platform(), "device": device, **libraries}
    if path.exists():
        try:
            changed = differences(json.loads(path.read_text(encoding="utf-8")), now)
        except (ValueError, AttributeError):
            changed = [f"{path.name} was damaged and is replaced"]
        if changed:
            logger.warning("the run was begun in another environment: %s", "; ".join(changed))
    write_json(path, now)
