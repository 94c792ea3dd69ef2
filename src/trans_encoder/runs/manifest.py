"""The manifest of a run folder: each finished stage with its inputs and the checksums of its files."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trans_encoder.errors import RunError
from trans_encoder.files import read_json, sha256, write_json
from trans_encoder.runs.layout import MANIFEST, Layout
from trans_encoder.runs.records import FileEntry, StageEntry
from trans_encoder.runs.stages import Spent, Stage

logger = logging.getLogger(__name__)

FORMAT = 2
"""The version of the format of run folders; trans-encoder 0.1.0 wrote version 1."""


@dataclass
class Manifest:
    """The finished stages of a run, and the hashes of what the run is made from."""

    layout: Layout
    origin: dict[str, Any]
    entries: dict[str, Any] = field(default_factory=dict)
    """As read; a damaged entry is not an error but a stage that is done again."""

    @classmethod
    def read(cls, layout: Layout) -> "Manifest":
        """Read the manifest of a folder; an empty one if there is none."""
        content = read_object(layout.manifest)
        return cls(layout, _table(content, "origin", layout), _table(content, "stages", layout))

    def save(self) -> None:
        """Write the manifest. A run folder that has vanished is not created again."""
        content = {"version": FORMAT, "origin": self.origin, "stages": self.entries}
        write_json(self.layout.manifest, content, make_parents=False)

    def is_finished(self, stage: Stage) -> bool:
        """Whether a stage was done with these inputs and its files are as it made them."""
        if stage.name not in self.entries:
            return False
        damaged = damaged_files(self.layout.root, {stage.name: self.entries[stage.name]})
        if damaged:
            logger.warning(
                "%s is missing or was altered; the stage %s is done again", ", ".join(damaged[:3]), stage.name
            )
        return not damaged and bool(self.entries[stage.name]["inputs"] == as_read(stage.inputs))

    def add(self, stage: Stage, spent: Spent) -> None:
        """Add a stage that was just finished."""
        place = self.layout.root / stage.name
        files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
        entry = StageEntry(
            inputs=stage.inputs,
            files={self.layout.name(file): FileEntry(bytes=file.stat().st_size, sha256=sha256(file)) for file in files},
            seconds=round(spent.seconds, 3),
            peak_memory_bytes=spent.peak_memory_bytes,
        )
        self.entries[stage.name] = entry.model_dump(mode="json")
        self.save()

    def digest(self, name: str) -> str:
        """Return one checksum for all files of a finished stage."""
        files = StageEntry.model_validate(self.entries[name]).files
        lines = "\n".join(f"{file} {files[file].sha256}" for file in sorted(files))
        return hashlib.sha256(lines.encode()).hexdigest()


def damaged_files(run: Path, entries: Mapping[str, Any]) -> list[str]:
    """Return the files of stages that are not as they were made; the manifest itself if an entry is invalid."""
    try:
        stages = [StageEntry.model_validate(entry) for entry in entries.values()]
    except ValidationError:
        return [MANIFEST]
    files = {name: file for stage in stages for name, file in stage.files.items()}
    return [name for name, file in files.items() if not _is_whole(run / name, file)]


def _is_whole(path: Path, known: FileEntry) -> bool:
    return path.is_file() and path.stat().st_size == known.bytes and sha256(path) == known.sha256


def _table(content: Mapping[str, Any], key: str, layout: Layout) -> dict[str, Any]:
    table = content.get(key, {})
    if not isinstance(table, dict):
        raise RunError(_damaged(layout.manifest, f"{key} is not a JSON object"))
    return table


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; an empty one if there is no such file."""
    try:
        return read_json(path)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RunError(_damaged(path, str(error))) from error


def as_read(inputs: Mapping[str, Any]) -> Any:
    """Return what a stage is made from as JSON gives it back: tuples become lists, integer keys strings."""
    return json.loads(json.dumps(inputs))


def _damaged(path: Path, reason: str) -> str:
    return f"{path} is damaged ({reason}); restore it from a copy, or remove it to have its run verified and completed"
