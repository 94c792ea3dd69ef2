"""Word embeddings in training on a CPU: no work on the rows of tokens that do not occur."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from trans_encoder.runner import Lengths


class TrainedEmbeddings:
    """The embeddings of the tokens that a training sees, in a small table of their own while it lasts.

    The rows of other tokens never have a gradient: weight decay alone changes them. So the small table has one more
    row, of ones, which no token uses; it collects the factor by which the other rows have decayed. A step also touches
    no more of the gradient than the rows of its own tokens.
    """

    def __init__(self, table: nn.Embedding, tokens: Lengths) -> None:
        """Take the rows of these tokens out of a table."""
        self._table, self._whole = table, table.weight
        padding = [] if table.padding_idx is None else [table.padding_idx]
        self._rows = torch.from_numpy(np.union1d(tokens, padding).astype(np.int64))
        self._places = torch.full((table.num_embeddings,), -1)  # a token that was not announced is an error
        self._places[self._rows] = torch.arange(len(self._rows))
        self._padding = int(self._places[padding[0]]) if padding else None
        self._small = nn.Parameter(self._cut())
        self._gradient = torch.zeros_like(self._small)
        self._touched = torch.empty(0, dtype=torch.int64)
        self._ahead, self._lock = False, Lock()  # whether the small table was trained since it was last copied back

    def __deepcopy__(self, _: Any) -> "TrainedEmbeddings":
        """Stay one object: the replicas of a model share its weights."""
        return self

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Train the small table inside this block; the state of the model still has the whole one."""
        table = self._table
        table.weight = self._small
        table.forward = partial(self._look_up, table)  # type: ignore[method-assign]
        hooks = (
            table.register_state_dict_post_hook(partial(self._give_whole)),  # type: ignore[no-untyped-call]
            table.register_load_state_dict_pre_hook(self._take_whole),  # type: ignore[no-untyped-call]
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            del table.forward
            self.settle()
            table.weight = self._whole

    def gather(self) -> None:
        """Put the rows of this step into one dense gradient, which is what clipping and the optimiser expect."""
        self._ahead = True
        sparse = self._small.grad
        if sparse is not None:
            # Zero the rows of the last step only: a dense zero_() of the whole table is what this class avoids.
            self._gradient.index_fill_(0, self._touched, 0.0)
            self._touched = sparse._indices()[0]
            self._gradient.index_add_(0, self._touched, sparse._values())
            self._small.grad = self._gradient

    def settle(self) -> None:
        """Bring the whole table up to date; outside of training it is the one that is read."""
        with self._lock, torch.inference_mode(False), torch.no_grad():
            if self._ahead:
                self._whole.mul_(self._small[-1, 0])
                self._whole.index_copy_(0, self._rows, self._small[:-1])
                self._small[-1] = 1.0
                self._ahead = False

    def _cut(self) -> Tensor:
        whole = self._whole.detach()
        return torch.cat([whole[self._rows], whole.new_ones(1, whole.shape[1])])

    def _look_up(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        if not table.training:
            self.settle()
            return functional.embedding(ids, self._whole)
        return functional.embedding(self._places[ids], table.weight, padding_idx=self._padding, sparse=True)

    def _give_whole(self, _: nn.Module, state: dict[str, Any], prefix: str, *__: Any) -> None:
        self.settle()
        state[f"{prefix}weight"] = self._whole.detach()

    @torch.no_grad()
    def _take_whole(self, _: nn.Module, state: dict[str, Any], prefix: str, *__: Any) -> None:
        if f"{prefix}weight" in state:
            self._whole.copy_(state[f"{prefix}weight"])
            self._ahead = False
            state[f"{prefix}weight"] = self._cut()


def word_embeddings(model: Any) -> nn.Embedding | None:
    """Return a model's word embeddings if they are a plain table that is trained and used in one place only."""
    body: Any = getattr(model[0], "model", None)
    table: Any = body.get_input_embeddings() if hasattr(body, "get_input_embeddings") else None
    plain = type(table) is nn.Embedding and table.max_norm is None and table.weight.requires_grad
    if not plain or "forward" in vars(table):
        return None
    users = [module for module in model.modules() if any(each is table.weight for each in module._parameters.values())]
    return table if users == [table] else None
