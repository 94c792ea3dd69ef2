"""Time our cycle with and without single parts of `fast/`, in turn in one process.

    python benchmarks/parts.py --model MODEL --data-dir DATA --pairs 2000 --rounds 3

A part earns its place with 5 % of a whole cycle. The order of the variants rotates from round to round. The last one
packs through transformers' `AttentionInterface`: layers run as they are, and only attention separates the inputs.
"""

import json
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import cycle
import ours
import torch
import transformers
from measuring import timed
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface

from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import load_task
from trans_encoder.encoders.tokens import PairTokeniser
from trans_encoder.fast import matmul, packing, runner


def packed_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **named: Any
) -> tuple[Tensor, None]:
    """Attend within the inputs of a packed row; outside of packed passes as transformers does."""
    segments = packing.packed_segments()
    if segments is None:
        return AttentionInterface._global_mapping["plain sdpa"](module, query, key, value, mask, **named)
    cuts = [count * length for count, length in segments]
    outputs = []
    runs = [torch.split(each[0], cuts, dim=1) for each in (query, key, value)]
    for place, (count, length) in enumerate(segments):
        heads = (run[place].unflatten(1, (count, length)).transpose(0, 1) for run in runs)
        found = functional.scaled_dot_product_attention(*heads, dropout_p=named["dropout"], scale=named["scaling"])
        outputs.append(found.transpose(1, 2).flatten(0, 1))
    return torch.cat(outputs)[None], None


@contextmanager
def attention_interface() -> Iterator[None]:
    """Pack through transformers' extension point for attention; its layers are left as they are."""
    AttentionInterface.register("plain sdpa", AttentionInterface._global_mapping["sdpa"])
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(AttentionInterface._global_mapping, {"sdpa": packed_attention}))
        stack.enter_context(
            mock.patch.object(packing, "_layer", lambda _, plain, *given, **named: plain(*given, **named))
        )
        yield


WITHOUT = {
    "all": nullcontext,  # with oneDNN or not, as the CPU's make decides
    "oneDNN": lambda: mock.patch.object(matmul, "_capability", torch.backends.cpu.get_cpu_capability),
    "without oneDNN": lambda: mock.patch.object(matmul, "_capability", return_value=""),
    "without embeddings": lambda: mock.patch.object(runner, "word_embeddings", return_value=None),
    "packing by AttentionInterface": attention_interface,
}


def one_cycle(model: str, pairs: PairSet, *, preset: str, bi_epochs: int | None) -> dict[str, float]:
    """Run one cycle of ours; return the seconds of each stage."""
    plan = cycle.settings(model, preset=preset, bi_epochs=bi_epochs)
    PairTokeniser.forget()
    bi, cross = ours.load_bi(model, plan.bi), ours.load_cross(model, plan.cross, seed=0)
    seconds: dict[str, float] = {}
    labels, seconds["bi labelling"] = timed(ours.score_bi, bi, pairs)
    _, seconds["cross training"] = timed(ours.train_cross, cross, pairs.with_scores(labels), plan.cross, seed=0)
    labels, seconds["cross labelling"] = timed(ours.score_cross, cross, pairs)
    _, seconds["bi training"] = timed(ours.train_bi, bi, pairs.with_scores(labels), plan.bi, seed=0)
    return seconds


def main() -> None:
    parser = cycle.parser_of(__doc__, pairs=2000)
    parser.add_argument("--rounds", type=int, default=3, help="cycles of each variant (default: 3)")
    arguments = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()

    pairs = load_task("sts", data_dir=arguments.data_dir).pairs.sample(arguments.pairs, seed=0)
    names = list(WITHOUT)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(arguments.rounds):
        for place in range(len(names)):
            name = names[(place + turn) % len(names)]
            with WITHOUT[name]():
                runs[name].append(
                    one_cycle(arguments.model, pairs, preset=arguments.preset, bi_epochs=arguments.bi_epochs)
                )
            print(name, json.dumps({stage: round(each, 2) for stage, each in runs[name][-1].items()}), flush=True)
    totals = {name: [sum(each.values()) for each in several] for name, several in runs.items()}
    result: dict[str, Any] = {
        name: {
            "seconds": [round(total, 1) for total in totals[name]],
            "of_median": round(statistics.median(totals[name]) / statistics.median(totals["all"]), 3),
            "of_best": round(min(totals[name]) / min(totals["all"]), 3),
        }
        for name in names
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
