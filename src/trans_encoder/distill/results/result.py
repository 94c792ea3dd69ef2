"""The result of a run: the chosen models, their scores and the start's, and whether it helped."""

from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

from pydantic import PrivateAttr

from trans_encoder.config import FUNCTION
from trans_encoder.data import PairSet
from trans_encoder.distill.labels import assemble_teachers
from trans_encoder.distill.team import ModelRef, assemble, config_of
from trans_encoder.encoders import BiEncoder, CrossEncoder, Kind, best_device, load_encoder
from trans_encoder.errors import RunError
from trans_encoder.evaluation.ensembles import Ensemble, Voter, check_ensemble_folder, save_ensemble
from trans_encoder.runs import Chosen, Layout, ResultRecord, Run, read_record


class Result(ResultRecord):
    """A finished run: its record, and the models, which are loaded when they are asked for."""

    folder: Path
    _loaded: dict[str, BiEncoder | CrossEncoder] = PrivateAttr(default_factory=dict)

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Read the result of a finished run."""
        folder = Path(folder)
        try:
            record = read_record(ResultRecord, Layout(folder).result)
        except RunError as error:
            raise RunError(f"{folder} holds no finished run ({error}); run the training to its end first") from error
        return cls(folder=folder, **dict(record))

    @cached_property
    def bis(self) -> dict[str, BiEncoder]:
        """The chosen bi-encoder of each member."""
        return {name: cast(BiEncoder, self._load(member.bi)) for name, member in self.members.items()}

    @cached_property
    def crosses(self) -> dict[str, CrossEncoder]:
        """The chosen cross-encoder of each member; empty where none was trained."""
        chosen = {name: member.cross for name, member in self.members.items()}
        return {name: cast(CrossEncoder, self._load(model)) for name, model in chosen.items() if model is not None}

    @property
    def bi(self) -> BiEncoder:
        """The bi-encoder with the best score; without validation, the first member's."""
        return cast(BiEncoder, self._load(self.members[self._best("bi")].bi))

    @property
    def cross(self) -> CrossEncoder:
        """The cross-encoder with the best score; without validation, the first member's."""
        if not any(member.cross for member in self.members.values()):
            raise RunError("this run trained no cross-encoder: its formulation was bi (standard self-distillation)")
        return cast(CrossEncoder, self._load(cast(Chosen, self.members[self._best("cross")].cross)))

    @property
    def to_ship(self) -> dict[Kind, Path]:
        """The folders of the best bi-encoder and cross-encoder, those that `bi` and `cross` load."""
        kinds: tuple[Kind, ...] = ("bi", "cross") if any(each.cross for each in self.members.values()) else ("bi",)
        best = {kind: cast(Chosen, self.members[self._best(kind)].chosen(kind)) for kind in kinds}
        return {kind: self.folder / model.folder for kind, model in best.items()}

    def _best(self, kind: Kind) -> str:
        scores = {name: chosen.score for name, member in self.members.items() if (chosen := member.chosen(kind))}
        return max(scores, key=lambda name: float("-inf") if scores[name] is None else cast(float, scores[name]))

    def _load(self, chosen: Chosen) -> BiEncoder | CrossEncoder:
        """Load a model once, with the run's device and settings."""
        if chosen.folder not in self._loaded:
            self._loaded[chosen.folder] = load_encoder(self.folder / chosen.folder, **self._settings)
        return self._loaded[chosen.folder]

    @cached_property
    def _settings(self) -> dict[str, Any]:
        config = Run.open(self.folder).config
        # A finished run may be opened on a machine without the device that it ran on.
        here = config["device"].partition(":")[0] in ("cpu", best_device().partition(":")[0])
        return {"device": config["device"] if here else None, "trust_remote_code": config["trust_remote_code"]}


_SAMPLE = 1000


def ensemble_run(run: str | Path | Result, *, out: str | Path) -> Ensemble:
    """Save the chosen models of a run and the encoders among its teachers as one ensemble.

    The folder holds copies of all models; `score`, `evaluate` and `label` take it like a model.
    """
    check_ensemble_folder(Path(out))  # before all models are loaded
    result = run if isinstance(run, Result) else Result.open(run)
    config, layout = config_of(result.folder), Layout(result.folder)
    pairs = PairSet.open(layout.pairs())
    sample = pairs if len(pairs) <= _SAMPLE else pairs.sample(_SAMPLE, seed=config.seed)
    both = config.both_orders and config.both_orders_labels
    voters = [Voter(f"{name}-bi", encoder) for name, encoder in result.bis.items()]
    voters += [Voter(f"{name}-cross", encoder, both_orders=both) for name, encoder in result.crosses.items()]
    encoders = config.model_copy(
        update={"teachers": tuple(each for each in config.teachers if not each.spec.startswith(FUNCTION))}
    )
    for vote in assemble_teachers(encoders, assemble(encoders)):
        if isinstance(vote.teacher, ModelRef):
            voters.append(Voter(vote.teacher.name, vote.teacher.load(), vote.weight, vote.teacher.both_orders))
    return save_ensemble(voters, sample, out=out)
