"""A run folder: `Run.open` reads it, `Run.claim` locks it and completes stages in it."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trans_encoder.errors import RunError, TransEncoderError
from trans_encoder.files import read_json, write_json
from trans_encoder.progress import progress
from trans_encoder.ranks import from_first_rank, is_first_rank
from trans_encoder.runs.claims import (
    check_agreed,
    check_owned,
    check_place,
    check_shared,
    locked,
    storage_reason,
    unchanged,
)
from trans_encoder.runs.layout import Layout, scratch, scratch_inputs
from trans_encoder.runs.manifest import Manifest, as_read, damaged_files, read_object
from trans_encoder.runs.records import HistoryLine, ResultRecord, StageEntry, ValidatedLine, read_record
from trans_encoder.runs.stages import Engine, Spent, Stage, attempted, identity
from trans_encoder.runs.workers.ranks import local_engine


@dataclass(frozen=True)
class Run:
    """A run folder, finished or not, to read; what is absent is empty."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> "Run":
        """Open a folder that holds a run's configuration."""
        run = cls(Path(path))
        if not run.layout.config.is_file():
            raise RunError(
                f"{path} is not a run folder: it has no {run.layout.config.name}; give the --out folder of a run"
            )
        return run

    @staticmethod
    @contextmanager
    def claim(
        path: Path,
        *,
        config: Mapping[str, Any],
        origin: Mapping[str, Any],
        engine: Engine | None = None,
    ) -> Iterator["ClaimedRun"]:
        """Lock a new or existing run folder; refuse it if it was begun with other settings or inputs.

        `origin` holds the hashes of what the run is made from: pairs, dev set, models.
        """
        begun = False
        try:
            with _owned(path, config) if is_first_rank() else nullcontext():
                manifest = from_first_rank(lambda: _begin(Layout(path), config, origin))
                check_shared(path)
                check_agreed(config, origin)
                begun = True
                made_from = identity({"config": config, "origin": origin})
                yield ClaimedRun(path, engine or local_engine(), manifest, made_from)
        except Exception as error:
            if begun:
                check_place(path, error)  # if the folder is gone, the error that follows is not the cause
            reason = storage_reason(error, path)
            if reason is None:
                raise
            raise RunError(
                f"cannot write to {path}: {reason}; what is finished is kept. "
                f"Free some space or repair the folder, then the same command continues"
            ) from error

    @property
    def layout(self) -> Layout:
        """Where it keeps what."""
        return Layout(self.path)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration as resolved."""
        return read_object(self.layout.config)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, platform and device."""
        return read_object(self.layout.environment)

    @cached_property
    def origin(self) -> Mapping[str, Any]:
        """The hashes of what it is made from."""
        return self._manifest.origin

    @cached_property
    def stages(self) -> dict[str, StageEntry]:
        """Each finished stage."""
        try:
            return {name: StageEntry.model_validate(entry) for name, entry in self._manifest.entries.items()}
        except ValidationError as error:
            raise RunError(
                f"{self.layout.manifest} is damaged; run the command that made the folder again: it restores it"
            ) from error

    @cached_property
    def result(self) -> ResultRecord | None:
        """The chosen models and whether they are better than the start; None until the run is finished."""
        return read_record(ResultRecord, self.layout.result) if self.layout.result.exists() else None

    @cached_property
    def history(self) -> list[ValidatedLine]:
        """Every validated checkpoint of a training, in the order of time."""
        return [line for line in self._validated if line.cycle > 0]

    @cached_property
    def start_scores(self) -> dict[str, float]:
        """The score of each member's first bi-encoder: the history's cycle 0."""
        return {line.member: line.score for line in self._validated if line.cycle == 0}

    @cached_property
    def _validated(self) -> list[ValidatedLine]:
        path, found = self.layout.history, []
        for number, text in enumerate(path.read_text("utf-8").splitlines() if path.exists() else [], start=1):
            try:
                line = HistoryLine.model_validate_json(text)
            except ValidationError as error:
                reason = error.errors()[0]["msg"]
                raise RunError(f"{path}, line {number} cannot be read: {reason}; remove that line") from error
            if line.score is not None:
                found.append(ValidatedLine.model_validate(line.model_dump()))
        return found

    @cached_property
    def _manifest(self) -> Manifest:
        return Manifest.read(self.layout)

    def refuse_damage(self, error: Exception) -> None:
        """Name the files that are not as the run made them, if there are any: they explain an error."""
        if isinstance(error, TransEncoderError):
            return
        damaged = damaged_files(self.path, self._manifest.entries)
        if damaged:
            raise RunError(
                f"{self.path}: {', '.join(damaged[:3])} missing or altered; run the command that made the folder "
                f"again: it restores what is damaged, and does nothing else"
            ) from error


@dataclass
class ClaimedRun:
    """A run folder that this process has locked."""

    path: Path
    engine: Engine
    manifest: Manifest
    identity: str
    """A hash of the run's configuration and origin."""

    @property
    def layout(self) -> Layout:
        """Where it keeps what."""
        return self.manifest.layout

    def stage(self, path: Path, inputs: Mapping[str, Any], work: Callable[[Path], None], **options: Any) -> Stage:
        """Return the stage whose result is at a path of this folder."""
        return Stage(self.layout.name(path), inputs, work, **options)

    def complete(self, stages: Sequence[Stage], *, advance: Callable[[int], None] = lambda _: None) -> None:
        """Do the work of those of these independent stages that are not finished yet; `advance` counts them all."""
        # Only rank 0 reads the manifest: on shared storage the ranks could see different states of it.
        missing = from_first_rank(lambda: [stage.name for stage in stages if not self.manifest.is_finished(stage)])
        for stage in stages:
            if stage.name not in missing:
                self._clear(stage)  # a kill may have left its scratch folder
                advance(1)
        todo = [stage for stage in stages if stage.name in missing]
        peak = self._make_parts(todo)
        for stage, spent in self._done(todo):
            if is_first_rank():
                check_place(self.path)  # writing would recreate a folder that was unmounted or moved away
                self.manifest.add(stage, spent._replace(peak_memory_bytes=peak.and_then(spent).peak_memory_bytes))
            self._clear(stage)
            advance(1)
        self.manifest.entries = from_first_rank(lambda: self.manifest.entries)

    def digest(self, path: Path) -> str:
        """Return one checksum for all files of a finished stage."""
        return self.manifest.digest(self.layout.name(path))

    def _make_parts(self, stages: Sequence[Stage]) -> Spent:
        """Make those parts of stages that are not there yet; the time is kept as an attempt at each stage."""
        missing = from_first_rank(lambda: self._missing_parts(stages))
        todo = [part for stage in stages for part in stage.parts if part.name in missing]
        most = Spent(0.0, None)
        with ExitStack() as attempts, progress("parts of the stage", total=len(todo)) as advance:
            for stage in stages:
                if stage.parts:
                    attempts.enter_context(attempted(self.path / stage.name))
            for _, spent in self._done(todo):
                most = most.and_then(spent)
                advance(1)
        return most

    def _missing_parts(self, stages: Sequence[Stage]) -> set[str]:
        """Return the parts that must be made, after removing those that were made from other inputs."""
        for stage in stages:
            # Parts carry no inputs of their own; one note for all of them says whether they are still valid.
            note = scratch_inputs(self.path / stage.name)
            if stage.parts and not _holds(note, stage.inputs):
                shutil.rmtree(note.parent, ignore_errors=True)
                write_json(note, stage.inputs)
        return {part.name for stage in stages for part in stage.parts if not (self.path / part.name).exists()}

    def _done(self, stages: Sequence[Stage]) -> Iterator[tuple[Stage, Spent]]:
        """Have the work done: the owner's in this process, the rest by the engine."""
        yield from local_engine()(self.path, [stage for stage in stages if stage.by == "owner"])
        yield from self.engine(self.path, [stage for stage in stages if stage.by != "owner"])

    def _clear(self, stage: Stage) -> None:
        if is_first_rank():
            shutil.rmtree(scratch(self.path / stage.name), ignore_errors=True)


@contextmanager
def _owned(path: Path, config: Mapping[str, Any]) -> Iterator[None]:
    """Create the folder of a run, or take over an existing one, and keep other processes out of it."""
    check_owned(path, config)
    path.mkdir(parents=True, exist_ok=True)
    with locked(Layout(path)):
        yield


def _begin(layout: Layout, config: Mapping[str, Any], origin: Mapping[str, Any]) -> Manifest:
    """Compare a run with what it was begun with, and write its configuration and manifest."""
    manifest = unchanged(layout, config, origin)
    # The manifest goes last: a folder that has one has a configuration, too.
    write_json(layout.config, config)
    manifest.save()
    return manifest


def _holds(note: Path, inputs: Mapping[str, Any]) -> bool:
    try:
        return bool(read_json(note) == as_read(inputs))
    except (OSError, ValueError):
        return False
