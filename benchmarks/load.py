"""Load and endurance: a million pairs through a run that is killed and continued, and many runs in one process.

    python benchmarks/load.py --pairs 1000000
    python benchmarks/load.py --soak 200

The first reads synthetic pairs, one in ten of them twice, removes the duplicates, labels them with a tiny model, is
killed once the labels are saved, and is continued to the end of a training. Peaks are what the kernel saw, above the
process with its model loaded. The second looks for growth of memory, files or threads from one run to the next.
"""

import argparse
import json
import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from trans_encoder.data.pairs import PairSet
from trans_encoder.encoders import BiEncoder
from trans_encoder.pipelines.distil import distil

LIMIT_BYTES = 2 << 30
FORK = multiprocessing.get_context("fork")
SYLLABLES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "zy")
WORDS = [first + second + third for first in SYLLABLES for second in SYLLABLES for third in SYLLABLES]


def build_model(folder: Path) -> None:
    """Save a BERT of one layer that knows all words."""
    vocabulary = {word: place for place, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **shape)).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)


def write_pairs(path: Path, count: int) -> None:
    """Write pairs of 6 to 14 words, the second a changed copy of the first; one in ten lines repeats an earlier one."""
    random, recent = Random(0), [""] * 1000
    with path.open("w", encoding="utf-8") as file:
        file.write("sentence1\tsentence2\n")
        for number in range(count):
            if number >= len(recent) and random.random() < 0.1:
                line = random.choice(recent)
            else:
                words = random.choices(WORDS, k=random.randint(6, 14))
                changed = [random.choice(WORDS) if random.random() < 0.4 else word for word in words]
                line = f"{' '.join(words)}\t{' '.join(changed)}\n"
                recent[number % len(recent)] = line
            file.write(line)


class Job:
    """One process of the load: reads, removes duplicates, begins or continues the run."""

    def __init__(self, root: Path) -> None:
        self._root, self._steps = root, FORK.SimpleQueue()
        self.process = FORK.Process(target=self._work)

    def _work(self) -> None:
        torch.set_num_threads(1)
        model = str(self._root / "model")
        BiEncoder.load(model, max_tokens=32, device="cpu").encode(["warm"])
        self._note("model", 0)
        pairs = self._timed("read", lambda: PairSet.read(self._root / "pairs.tsv"))
        pairs = self._timed("deduplicate", pairs.deduplicated)
        self._note("pairs left", len(pairs))
        plan = {"batch_size": 512, "epochs": 1, "checkpoint_steps": 500, "dev_steps": 10_000}
        settings = {"formulation": "bi", "cycles": 1, "selection": "last", "device": "cpu", "bi": plan}
        self._timed("run", lambda: distil(pairs, model, out=self._root / "run", **settings))

    def _timed(self, name: str, work: Any) -> Any:
        begun = time.perf_counter()
        result = work()
        self._note(name, round(time.perf_counter() - begun, 1))
        return result

    def _note(self, name: str, value: float) -> None:
        self._steps.put((name, value, *memory(os.getpid())))

    def follow(self, *, until: str | None = None) -> dict[str, Any]:
        """Watch the process to its end, or kill it when a stage is in the manifest; return what each step took."""
        manifest, peak = self._root / "run" / "manifest.json", 0
        self.process.start()
        while self.process.is_alive():
            peak = max(peak, memory(self.process.pid)[1])
            if until and manifest.exists() and until in json.loads(manifest.read_text())["stages"]:
                os.kill(self.process.pid or 0, signal.SIGKILL)
                break
            self.process.join(0.05)
        self.process.join()
        steps = {}
        while not self._steps.empty():
            name, value, resident, high = self._steps.get()
            steps[name] = (value, resident, high)
            peak = max(peak, high)
        base = steps.pop("model")[1]
        return {
            **{f"{name}, seconds" if name != "pairs left" else name: value for name, (value, _, _) in steps.items()},
            **{f"peak above the model after {name}, MiB": (high - base) >> 20 for name, (_, _, high) in steps.items()},
            "model, MiB": base >> 20,
            "peak above the model, MiB": (peak - base) >> 20,
            "exit code": self.process.exitcode,
        }


def memory(process: int | None) -> tuple[int, int]:
    """Return a process's resident memory and its peak so far, in bytes; zero when it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return values.get("VmRSS", 0), values.get("VmHWM", 0)


def load(root: Path, count: int) -> bool:
    """Kill a run of `count` pairs once its labels are saved, continue it, and say what both took."""
    labels = root / "run" / "cycle-1" / "labels-bi.parquet"
    build_model(root / "model")
    write_pairs(root / "pairs.tsv", count)
    print(f"{count:,} pairs, {(root / 'pairs.tsv').stat().st_size / 2**20:.0f} MiB")
    first = Job(root).follow(until="cycle-1/labels-bi.parquet")
    made = labels.stat().st_mtime_ns
    print("until it is killed:", json.dumps(first, indent=2))
    second = Job(root).follow()
    print("continued to the end:", json.dumps(second, indent=2))
    peak = max(each["peak above the model, MiB"] for each in (first, second)) << 20
    kept = labels.stat().st_mtime_ns == made
    fine = first["exit code"] == -signal.SIGKILL and second["exit code"] == 0 and kept and peak < LIMIT_BYTES
    said = "kept its labels" if kept else "made its labels again"
    print(f"peak {peak / 2**20:,.0f} MiB above the model, limit {LIMIT_BYTES >> 20:,}; the continued run {said}")
    return fine


def soak(root: Path, runs: int) -> bool:
    """Do many tiny runs in this process; memory, open files and threads must not grow with them."""
    torch.set_num_threads(1)
    build_model(root / "model")
    write_pairs(root / "pairs.tsv", 40)
    plan = {"batch_size": 16, "epochs": 1, "learning_rate": 1e-3, "checkpoint_steps": 1}
    settings = {"cycles": 1, "device": "cpu", "cross": {**plan, "max_tokens": 48}, "bi": plan}
    seen = []
    for number in range(runs):
        pairs = PairSet.read(root / "pairs.tsv")
        distil(pairs.sample(38, seed=number), str(root / "model"), out=root / "run", **settings)
        shutil.rmtree(root / "run")
        files = len(list(Path("/proc/self/fd").iterdir()))
        seen.append((memory(os.getpid())[0], files, threading.active_count()))
        if number % 20 == 19:
            print(f"{number + 1} runs: {seen[-1][0] / 2**20:.0f} MiB, {files} open files, {seen[-1][2]} threads")
    settled = np.array(seen[len(seen) // 4 :], dtype=float)
    growth = np.polyfit(np.arange(len(settled)), settled[:, 0], 1)[0] / 1024
    files, threads = (int(settled[-1, column] - settled[0, column]) for column in (1, 2))
    print(f"after the first quarter: {growth:+.1f} KiB a run, {files:+d} open files, {threads:+d} threads")
    return growth < 64 and files <= 0 and threads <= 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--soak", type=int, default=0, metavar="RUNS")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    fine = []
    for work, size in ((load, arguments.pairs), (soak, arguments.soak)):
        if size:
            with tempfile.TemporaryDirectory(prefix="load-") as folder:
                fine.append(work(Path(folder), size))
    raise SystemExit(0 if fine and all(fine) else 1)


if __name__ == "__main__":
    main()
