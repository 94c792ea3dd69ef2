"""Which mix of near, middle, far and random pairs teaches best when the pairs come from a text?

    python benchmarks/mixes.py --text wiki.txt.gz --model START=PLM --data-dir DATA --json mixes.jsonl
    python benchmarks/mixes.py --show mixes.jsonl

For every mix and seed, pairs are mined with the start and one cycle is run on them; nothing is chosen, the last
checkpoints count. The labels of the seven STS test sets are used to evaluate only.
"""

import argparse
import json
import os
import tempfile
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import numpy as np
import transformers
from measuring import sts_tests

from trans_encoder import BiEncoder, Text, distil, evaluate, mine
from trans_encoder.mining import Mix

MIXES = ["1,0,0,0,0", "0,0,0,1,0", "4,2,2,2,0", "1,0,0,1,2", "1,1,1,1,4", "0,0,0,1,3", "0,0,0,0,1"]
START = "the start"


def collect(arguments: argparse.Namespace) -> None:
    """Run a cycle for every mix and seed, and add a line for each to the file."""
    text = Text.read(arguments.text)
    text = text.sample(min(arguments.sentences, len(text)), seed=0)
    start = BiEncoder.load(arguments.model.partition("=")[0], max_tokens=32)
    tests = sts_tests(arguments.data_dir, most=arguments.test_pairs)
    _add(arguments.json, {"mix": START, "seed": None, "bi": evaluate(start, tests).average, "cross": None})
    for seed in range(arguments.seeds):
        for mix in arguments.mix or MIXES:
            mined = mine(text, pairs=arguments.pairs, encoder=start, mix=Mix.parse(mix), seed=seed)
            with tempfile.TemporaryDirectory() as folder:
                settings = {"cycles": 1, "anchor": 0.0, "selection": "last", "seed": seed}
                result = distil(mined.pairs, arguments.model, out=folder, **settings)
                reached = {kind: evaluate(getattr(result, kind), tests).average for kind in ("bi", "cross")}
            _add(arguments.json, {"mix": mix, "seed": seed, **reached})


def show(rows: list[dict[str, object]]) -> None:
    """Print the means over the seeds."""
    groups: dict[object, list[dict[str, object]]] = defaultdict(list)
    for row in rows:
        groups[row["mix"]].append(row)
    print("| near, middle, far, random, parts | bi | cross | mean | seeds |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for mix, group in groups.items():
        bi, cross = ([row[kind] for row in group if row[kind] is not None] for kind in ("bi", "cross"))
        if mix == START:
            print(f"| {mix} | {np.mean(bi):.2f} | | | |")
        else:
            print(f"| {mix} | {np.mean(bi):.2f} | {np.mean(cross):.2f} | {np.mean(bi + cross):.2f} | {len(group)} |")


def _add(path: Path, row: dict[str, object]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(row, flush=True)


def main() -> None:
    """Collect or show from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="the text to mine")
    parser.add_argument("--model", metavar="BI[=PLM]", help="the start: a bi-encoder and its cross-encoder's PLM")
    parser.add_argument("--data-dir", help="folder of tasks in the plain format")
    parser.add_argument("--mix", action="append", help=f"shares of the bands; repeatable (default: {MIXES})")
    parser.add_argument("--sentences", type=int, default=20_000, help="sentences of the text (default: 20000)")
    parser.add_argument("--pairs", type=int, default=2000, help="pairs to mine (default: 2000)")
    parser.add_argument("--test-pairs", type=int, default=1000, help="most pairs of each test set (default: 1000)")
    parser.add_argument("--seeds", type=int, default=2, help="how many seeds (default: 2)")
    parser.add_argument("--json", type=Path, default=Path("mixes.jsonl"), help="where the lines are added")
    parser.add_argument("--show", type=Path, help="print the table of this file instead of collecting")
    arguments = parser.parse_args()
    if arguments.show:
        show([json.loads(line) for line in arguments.show.read_text("utf-8").splitlines()])
    elif not (arguments.text and arguments.model and arguments.data_dir):
        parser.error("give --text, --model and --data-dir, or --show FILE")
    else:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        collect(arguments)


if __name__ == "__main__":
    main()
