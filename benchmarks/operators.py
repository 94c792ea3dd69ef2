"""Where the time of training and labelling goes, operator by operator, as published and ours.

    python benchmarks/operators.py --model MODEL --data-dir DATA --pairs 400

Shares are of the operators' own CPU time (torch.profiler) in one thread, the only one that the profiler sees; loading
and reading are left out.
"""

import argparse

import numpy as np
import ours
import published
import torch
import transformers
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from trans_encoder.config import make_config
from trans_encoder.data.tasks import load_task

GROUPS = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear_pointwise"),
    "attention": (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        "aten::_softmax",
        "aten::_softmax_backward_data",
    ),
    "dropout": ("aten::bernoulli_", "aten::native_dropout", "aten::dropout"),
    "optimiser": ("aten::_fused_adamw_", "aten::linalg_vector_norm"),
    "zeroing": ("aten::fill_", "aten::zero_"),
    "copies": ("aten::copy_", "aten::clone"),
    "activations and norms": (
        "aten::gelu",
        "aten::gelu_backward",
        "aten::native_layer_norm",
        "aten::native_layer_norm_backward",
    ),
}


def shares(variant: object, arguments: argparse.Namespace, *, kind: str, work: str) -> tuple[dict[str, float], float]:
    """Return each group's share of the operator time of training or labelling, and that time in seconds."""
    config = make_config([arguments.model], preset="small", overrides={"bi.epochs": 1})
    pairs = load_task("sts", data_dir=arguments.data_dir).pairs.sample(arguments.pairs, seed=0)
    labelled = pairs.with_scores(np.random.default_rng(0).random(len(pairs)))
    plan = config.cross if kind == "cross" else config.bi
    if kind == "cross":
        train, score = variant.train_cross, variant.score_cross
        model = variant.load_cross(arguments.model, plan, seed=0)
    else:
        train, score = variant.train_bi, variant.score_bi
        model = variant.load_bi(arguments.model, plan)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        if work == "training":
            train(model, labelled, plan, seed=0)
        else:
            score(model, pairs)
    own = {event.key: event.self_cpu_time_total for event in profiled.key_averages()}
    total = sum(own.values())
    found = {group: sum(own.get(name, 0) for name in names) / total for group, names in GROUPS.items()}
    return {**found, "everything else": 1 - sum(found.values())}, total / 1e6


def main() -> None:
    """Profile training and labelling of both kinds in both variants; print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a bi-encoder: folder or hub name")
    parser.add_argument("--data-dir", required=True, help="folder of tasks in the plain format")
    parser.add_argument("--pairs", type=int, default=400, help="pairs of the STS pool (default: 400)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for work in ("training", "labelling"):
        columns = {
            f"{kind}, {name}": shares(variant, arguments, kind=kind, work=work)
            for kind in ("cross", "bi")
            for name, variant in (("published", published), ("ours", ours))
        }
        table = Table(f"{work}: share of time", *columns)
        for group in (*GROUPS, "everything else"):
            table.add_row(group, *(f"{found[group]:.1%}" for found, _ in columns.values()))
        first = {kind: columns[f"{kind}, published"][1] for kind in ("cross", "bi")}
        table.add_row(
            "time, published = 1", *(f"{time / first[name.split(',')[0]]:.2f}" for name, (_, time) in columns.items())
        )
        Console().print(table)


if __name__ == "__main__":
    main()
