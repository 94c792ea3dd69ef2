"""`Trainer` subclass: length-grouped batches, a validation callback, checksummed checkpoints, a runner's passes."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler
from transformers import (
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from trans_encoder.config import OptimisationPlan
from trans_encoder.encoders.batching import epoch_batches
from trans_encoder.encoders.loading import resolved_precision
from trans_encoder.encoders.tokens import Integers
from trans_encoder.errors import RunError
from trans_encoder.files import checksums, write_json
from trans_encoder.progress import progress
from trans_encoder.ranks import from_all_ranks, from_first_rank, mean_of_ranks, peers_alive
from trans_encoder.runner import TrainingSession
from trans_encoder.runs import Checkpoint, read_record, write_record

if TYPE_CHECKING:
    from trans_encoder.encoders.encoder import Encoder
    from trans_encoder.encoders.training import Objective, TrainingOptions

_KEPT, _BEST, _CHECKSUMS = "kept.json", "best.safetensors", "checksums.json"


class Kept(BaseModel):
    """What a checkpoint holds in addition to the trainer's own state."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    made_from: str = ""
    history: list[Checkpoint] = []
    best_step: int = 0
    best_score: float | None = None
    loss_sum: float = 0.0
    loss_steps: int = 0
    best_weights: dict[str, Any] = Field(default={}, exclude=True)

    def save(self, folder: Path) -> None:
        """Write into a checkpoint, the checksums of its files last: they mark it as whole."""
        if self.best_weights:
            save_file(self.best_weights, folder / _BEST)
        write_record(folder / _KEPT, self)
        write_json(folder / _CHECKSUMS, checksums(folder))

    @classmethod
    def load(cls, folder: Path) -> "Kept":
        """Read back what `save` wrote."""
        weights = load_file(folder / _BEST) if (folder / _BEST).exists() else {}
        return read_record(cls, folder / _KEPT).model_copy(update={"best_weights": weights})


class Share(NamedTuple):
    """The part of a batch that one rank has."""

    rows: list[int]
    weight: float
    """Weight of its mean loss, so that the mean over the ranks is the mean loss of the whole batch."""

    @classmethod
    def of(cls, batch: Integers, *, rank: int, world: int) -> "Share":
        """Split a batch; a rank without rows of a small one computes one row with weight 0."""
        rows = batch[rank::world].tolist()
        return cls(rows, len(rows) * world / len(batch)) if rows else cls(batch[:1].tolist(), 0.0)


@dataclass(eq=False)
class EpochBatches(Sampler[list[Share]]):
    """The batches of an epoch, this rank's share of each; the same seed and epoch give the same batches."""

    lengths: Integers
    plan: OptimisationPlan
    seed: int
    rank: int
    world: int
    epoch: int = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that is iterated next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.plan.batch_size)

    def __iter__(self) -> Iterator[list[Share]]:
        batches = epoch_batches(
            self.lengths,
            batch_size=self.plan.batch_size,
            seed=self.seed,
            epoch=self.epoch,
            by_length=self.plan.group_by_length,
        )
        yield from ([Share.of(batch, rank=self.rank, world=self.world)] for batch in batches)


class _Loader(DataLoader[Any]):
    def set_epoch(self, epoch: int) -> None:
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]


class _Rows(torch.utils.data.Dataset[Share]):
    """Rows by their numbers: the collator cuts whole batches from the token arrays."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, share: Share) -> Share:
        return share


class StageTrainer(Trainer):
    """Trains one student in one stage."""

    advance: Callable[[int], None]
    _session: TrainingSession

    def __init__(
        self, student: "Encoder", objective: "Objective", *, plan: OptimisationPlan, options: "TrainingOptions"
    ) -> None:
        self.kept = Kept(made_from=options.made_from)
        self._student, self._objective, self._plan, self._options = student, objective, plan, options
        arguments = _arguments(plan, options, device=student.device)
        super().__init__(model=objective.module, args=arguments, callbacks=[_EachStep(self)])
        self.remove_callback(PrinterCallback)

    def run(self) -> None:
        """Train from the last whole checkpoint, or from the start, to the end; then put the best weights back."""
        checkpoint = from_first_rank(lambda: _last_whole_checkpoint(self._options))
        if checkpoint is not None:
            self.kept = Kept.load(checkpoint)
        steps = self._plan.epochs * len(self._batches())
        with progress(self._options.description, total=steps) as self.advance:
            if checkpoint is not None:
                self.advance(int(checkpoint.name.split("-")[1]))
            if self.args.world_size > 1:
                # Each rank draws its own dropout.
                set_seed(self._options.seed + self.args.process_index)
            training = self._student.runner.training(
                self._objective.vocabulary, seed=self._options.seed, distributed=self.args.world_size > 1
            )
            with peers_alive(), training as self._session:
                self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        # After the session: outside of it a model has its own embeddings again, which these weights are for.
        if self.kept.best_weights:
            self._student.model.load_state_dict(self.kept.best_weights)
        self._student.model.eval()
        self._student.model.zero_grad(set_to_none=True)

    def create_optimizer(self, *given: Any, **named: Any) -> torch.optim.Optimizer:
        """Create the optimiser that the runner asks for."""
        if self.optimizer is None:
            chosen = self.get_optimizer_cls_and_kwargs(self.args)
            self.optimizer_cls_and_kwargs = self._session.optimiser(chosen)
        return super().create_optimizer(*given, **named)

    def _batches(self) -> EpochBatches:
        rank, world = self.args.process_index, self.args.world_size
        return EpochBatches(self._objective.lengths, self._plan, self._options.seed, rank, world)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader of this process's share of each batch; every process sees the same steps."""
        return _Loader(
            _Rows(len(self._objective.lengths)),
            batch_sampler=self._batches(),
            collate_fn=self._collate,
            # Its own generator: the loader must not draw from the stream that dropout draws from.
            generator=torch.Generator().manual_seed(self._options.seed),
        )

    def _collate(self, shares: list[Share]) -> dict[str, Any]:
        (share,) = shares
        return {"batch": self._objective.collate(np.asarray(share.rows)), "weight": share.weight}

    def training_step(self, *given: Any, **named: Any) -> Tensor:
        """Do a forward and a backward pass."""
        self._session.begin_step(self.state.global_step)
        return super().training_step(*given, **named)

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
        """Return the mean loss of this rank's share, weighted so that the mean over ranks is the batch's mean loss."""
        losses: Tensor = model(**inputs["batch"])
        loss: Tensor = losses.mean() * inputs["weight"]
        # Of all ranks, so that every rank records the same history and stops at the same step if it diverges.
        whole = mean_of_ranks(float(loss.detach()))
        self.kept.loss_sum += whole
        self.kept.loss_steps += 1
        if not np.isfinite(self.kept.loss_sum):
            raise self._diverged(f"the loss is {whole} at step {self.state.global_step + 1}")
        return loss

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        norm = self._session.clip(model.parameters(), self.args.max_grad_norm)
        return super()._clip_grad_norm(model) if norm is None else norm  # type: ignore[no-untyped-call]

    def _diverged(self, what: str) -> RunError:
        return RunError(
            f"{self._options.description}: {what}; "
            f"lower the learning rate (now {self._plan.learning_rate}) or use --set precision=fp32"
        )

    def judge(self, *, step: int, epoch: float) -> None:
        """Record loss and score of this step, and keep the weights if they are the best so far."""
        kept = self.kept
        if not all(bool(weight.isfinite().all()) for weight in self._student.model.parameters()):
            raise self._diverged(f"weights are no longer finite numbers after step {step}")
        judge = self._options.judge
        score = None if judge is None else float(judge(self._student))
        loss = kept.loss_sum / max(kept.loss_steps, 1)
        kept.history.append(Checkpoint(step=step, epoch=round(epoch, 4), loss=loss, score=score))
        kept.loss_sum, kept.loss_steps = 0.0, 0
        if score is not None and self._options.trackers:
            due = self.control.should_log
            self.log({"score": score})
            self.control.should_log = due  # logging the score must not cancel the logging of the loss
        if score is None or self._options.keep_last:
            kept.best_step, kept.best_score = step, score
        elif kept.best_score is None or score > kept.best_score:
            kept.best_step, kept.best_score = step, score
            kept.best_weights = _copied(self._student.model.state_dict())

    @property
    def gains_nothing(self) -> bool:
        """Whether the last validations found nothing better, as many in a row as the plan has patience for."""
        patience, kept = self._plan.patience, self.kept
        if patience == 0 or self._options.keep_last or kept.best_score is None:
            return False
        return sum(moment.step > kept.best_step for moment in kept.history) >= patience

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Save weights as safetensors, and nothing pickled."""
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        weights = state_dict if state_dict is not None else self._objective.module.state_dict()
        save_file(_copied(weights), folder / "model.safetensors")

    def _save_rng_state(self, output_dir: str) -> None:
        """Save every rank's random state; rank 0 writes them all, so that it knows when the checkpoint is whole."""
        if self.args.world_size == 1:
            super()._save_rng_state(output_dir)
            return
        with TemporaryDirectory(prefix="trans-encoder-") as temporary:
            super()._save_rng_state(temporary)
            mine = {path.name: path.read_bytes() for path in Path(temporary).iterdir()}
        for states in from_all_ranks(mine):
            for name, content in states.items():
                if self.args.should_save:
                    (Path(output_dir) / name).write_bytes(content)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            self.kept.save(Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}")


def _copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies in memory of their own: safetensors refuses tensors that share it, such as T5's tied embeddings."""
    return {name: weight.detach().to("cpu", copy=True).contiguous() for name, weight in weights.items()}


def _arguments(plan: OptimisationPlan, options: "TrainingOptions", *, device: torch.device) -> TrainingArguments:
    precision = resolved_precision(options.precision, device)
    arguments = TrainingArguments(
        output_dir=str(options.folder),
        per_device_train_batch_size=plan.batch_size,
        num_train_epochs=plan.epochs,
        learning_rate=plan.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=plan.warmup_ratio,
        weight_decay=plan.weight_decay,
        max_grad_norm=plan.max_grad_norm,
        optim="adamw_torch_fused",
        seed=options.seed,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=device.type == "cpu",
        save_strategy="no",
        save_total_limit=2,
        logging_strategy="steps" if options.trackers else "no",
        logging_steps=plan.dev_steps,
        report_to=list(options.trackers),
        disable_tqdm=True,
        remove_unused_columns=False,
        # A bi-encoder's own pooling layer is loaded with it, and not used; nor are the biases of the last layer's keys.
        ddp_find_unused_parameters=True,
        average_tokens_across_devices=False,
        log_level_replica="passive",
    )
    # One process drives one device: torchrun starts a process for each, DataParallel is never wanted.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    if device.type == "cuda" and device.index is not None and arguments.world_size == 1:
        # Left to itself, the trainer would move the student to the first GPU.
        torch.cuda.set_device(device)
        vars(arguments)["_setup_devices"] = device
    return arguments


class _EachStep(TrainerCallback):
    """Validates before a checkpoint is written, so that a continued run need not validate again."""

    def __init__(self, trainer: StageTrainer) -> None:
        self._trainer = trainer

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        plan, step = self._trainer._plan, state.global_step
        self._trainer.advance(1)
        epoch_steps = state.max_steps // plan.epochs
        if step % plan.dev_steps == 0 or step % epoch_steps == 0:
            self._trainer.judge(step=step, epoch=float(state.epoch or 0))
        control.should_save = step % plan.checkpoint_steps == 0 and step < state.max_steps
        if self._trainer.gains_nothing:
            # No checkpoint at this step: one would be continued as if there were more to do.
            control.should_training_stop, control.should_save = True, False
        return control


def _last_whole_checkpoint(options: "TrainingOptions") -> Path | None:
    """Return the newest whole checkpoint of this training; remove all others (incomplete, altered or of another)."""
    checkpoints = sorted(options.folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    usable = (path for path in reversed(checkpoints) if _is_whole(path))
    last = next((path for path in usable if Kept.load(path).made_from == options.made_from), None)
    for path in checkpoints:
        if path != last:
            shutil.rmtree(path)
    return last


def _is_whole(checkpoint: Path) -> bool:
    try:
        known = json.loads((checkpoint / _CHECKSUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(known == {name: value for name, value in checksums(checkpoint).items() if name != _CHECKSUMS})
