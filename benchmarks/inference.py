"""Inference on a CPU: ours, sentence-transformers (torch float32), onnxruntime float32 and int8, OpenVINO if installed.

    python benchmarks/inference.py --model MODEL --cross CROSS --data-dir DATA --work FOLDER

Tokens a second in batches, p50 and p99 of single queries, peak memory; with 1 and 2 threads, short and long texts, bi-
and cross-encoders. Each engine, kind and number of threads is a process of its own, short texts first. All engines are
measured in turn, `--rounds` times, and the tables have medians. Tokens a second of CPU time are there for machines that
are not idle; they count what threads spend waiting for each other, too. `--json` writes what the tables show.
`--data-dir` adds what each loses on the seven STS sets. Finished measurements are kept in FOLDER/inference.json: the
same command does what is missing. `--table` only prints.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

ENGINES = ("sentence-transformers", "ours", "onnx", "onnx-int8", "openvino", "openvino-float32")
KINDS, THREADS, LENGTHS = ("bi", "cross"), (1, 2), ("short", "long")
WORDS = {"short": 10, "long": 150}
QUERIES = {"short": 100, "long": 30}


def texts(length: str, count: int) -> list[str]:
    """Return texts of Python's documentation with a number of words around that of the length."""
    from pydoc_data.topics import topics

    words = " ".join(text for _, text in sorted(topics.items())).split()
    found, start = [], 0
    for number in range(count):
        size = max(3, round(WORDS[length] * (0.5 + (number * 7 % 11) / 10)))
        found.append(" ".join(words[start : start + size]))
        start = (start + size) % (len(words) - 400)
    return found


class OpenVino:
    """The float32 graph through OpenVINO, with our tokens and batches; by default in bf16 if the CPU has it."""

    def __init__(self, folder: Path, threads: int, *, float32: bool) -> None:
        import openvino
        import torch

        from trans_encoder.encoders import load_encoder
        from trans_encoder.runner import PlainRunner

        self.encoder = load_encoder(folder)
        core = openvino.Core()
        precision = {"INFERENCE_PRECISION_HINT": openvino.Type.f32} if float32 else {}
        core.set_property("CPU", {"INFERENCE_NUM_THREADS": threads, **precision})
        graph = self.encoder.model
        compiled = core.compile_model(str(graph.path), "CPU")
        output = compiled.output(graph.note["output"])

        def forward(_: Any, inputs: dict[str, Any]) -> Any:
            found = compiled({name: inputs[name].numpy() for name in graph.note["inputs"]})[output]
            return torch.from_numpy(found.copy() if graph.note["kind"] == "bi" else found[:, 0].copy())

        graph._sessions.clear()
        self.encoder.runner = PlainRunner(graph, forward)


def scorer(engine: str, kind: str, work: Path, threads: int) -> Any:
    """Return a function that embeds texts, or scores pairs, as one engine does."""
    import sentence_transformers

    from trans_encoder.encoders import load_encoder

    source = work / f"{kind}-model"
    if engine == "sentence-transformers":
        if kind == "bi":
            loaded = sentence_transformers.SentenceTransformer(str(source), device="cpu")
            return lambda given: loaded.encode(given, show_progress_bar=False)
        crossed = sentence_transformers.CrossEncoder(str(source), device="cpu")
        return lambda given: crossed.predict(given, show_progress_bar=False)
    if engine.startswith("openvino"):
        encoder = OpenVino(work / f"{kind}-onnx", threads, float32=engine == "openvino-float32").encoder
    else:
        folder = {"ours": source, "onnx": work / f"{kind}-onnx", "onnx-int8": work / f"{kind}-int8"}[engine]
        encoder = load_encoder(folder, device="cpu")
    return encoder.encode if kind == "bi" else encoder.score


def measure(engine: str, kind: str, threads: int, *, work: Path, count: int) -> dict[str, Any]:
    """Measure one engine in this process: length -> figures."""
    import torch
    from transformers import AutoTokenizer

    torch.set_num_threads(threads)
    run = scorer(engine, kind, work, threads)
    tokenizer = AutoTokenizer.from_pretrained(work / f"{kind}-model")
    return {
        length: timed(run, tokenizer, kind, length, work=work, count=count if length == "short" else count // 8)
        for length in LENGTHS
    }


def timed(run: Any, tokenizer: Any, kind: str, length: str, *, work: Path, count: int) -> dict[str, Any]:
    """Time a function on texts of one length."""
    import numpy as np

    given: Any = texts(length, count)
    if kind == "cross":
        given = list(zip(given, given[1:] + given[:1], strict=True))
    most = json.loads((work / f"{kind}-onnx" / "onnx" / "encoder.json").read_text())["max_tokens"]
    ids = tokenizer(*(zip(*given, strict=True) if kind == "cross" else [given]), truncation=True, max_length=most)
    tokens = sum(map(len, ids["input_ids"]))
    run(given[:32])
    best = best_cpu = np.inf
    for _ in range(3):
        begun, begun_cpu = time.perf_counter(), time.process_time()
        run(given)
        best, best_cpu = min(best, time.perf_counter() - begun), min(best_cpu, time.process_time() - begun_cpu)
    single = []
    for text in given[: QUERIES[length]]:
        begun = time.perf_counter()
        run([text])
        single.append(time.perf_counter() - begun)
    peak = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    p50, p99 = np.percentile(single, [50, 99]) * 1e3
    found = {"tokens_per_second": tokens / best, "tokens_per_cpu_second": tokens / best_cpu}
    return {**found, "p50_ms": p50, "p99_ms": p99, "peak_mb": peak / 1024, "texts": count}


def loss(engine: str, kind: str, *, work: Path, data_dir: str, pairs: int | None) -> dict[str, Any]:
    """Evaluate one engine on the seven STS sets, or on a sample of each."""
    from trans_encoder import TestSet, evaluate, load_task
    from trans_encoder.encoders import load_encoder

    folder = {"ours": "model", "onnx": "onnx", "onnx-int8": "int8"}[engine]
    tests = load_task("sts", data_dir=data_dir, tests_only=True).tests
    if pairs:
        tests = {name: TestSet(name, test.pairs.sample(pairs, seed=0)) for name, test in tests.items()}
    found = evaluate(load_encoder(work / f"{kind}-{folder}", device="cpu"), tests)
    return {"scores": found.scores, "average": found.average}


def prepare(model: str, cross: str | None, work: Path) -> None:
    """Save both kinds and export them, once; without a trained cross-encoder its head is new."""
    from trans_encoder import export
    from trans_encoder.encoders import BiEncoder, CrossEncoder

    for kind, load, source in (("bi", BiEncoder.load, model), ("cross", CrossEncoder.load, cross or model)):
        if not (work / f"{kind}-int8").exists():
            encoder = load(source, device="cpu", max_tokens=256)
            export(encoder, work / f"{kind}-model")
            export(encoder, work / f"{kind}-onnx", to="onnx")
            export(encoder, work / f"{kind}-int8", to="onnx", int8=True)


def summary(done: dict[str, Any]) -> dict[str, Any]:
    """Return the medians over all rounds as case -> engine -> figures; `times` are ratios to sentence-transformers."""
    found: dict[str, Any] = {}
    for kind, length, threads in product(KINDS, LENGTHS, THREADS):
        case = found[f"{kind}, {length}, {threads}"] = {}
        for engine in ENGINES:
            rounds = [one[length] for key, one in done.items() if key.startswith(f"{engine}/{kind}/{threads}/")]
            if rounds:
                case[engine] = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        base = case.get("sentence-transformers")
        for figures in case.values() if base else ():
            figures["times"] = figures["tokens_per_second"] / base["tokens_per_second"]
            figures["times_cpu"] = figures["tokens_per_cpu_second"] / base["tokens_per_cpu_second"]
    losses = {key: one for key, one in done.items() if key.startswith("loss/")}
    return {"cases": {name: case for name, case in found.items() if case}, **({"loss": losses} if losses else {})}


def table(done: dict[str, Any]) -> str:
    """Lay out what was measured as Markdown, a column for each case."""
    made = summary(done)
    cases = made["cases"]
    rows = []
    for title, shown in (
        ("tokens/s (times sentence-transformers)", "{tokens_per_second:,.0f} ({times:.2f})"),
        ("the same of CPU time", "{tokens_per_cpu_second:,.0f} ({times_cpu:.2f})"),
        ("one query: p50 / p99, ms", "{p50_ms:.1f} / {p99_ms:.1f}"),
        ("peak memory, MB", "{peak_mb:,.0f}"),
    ):
        rows += ["", f"| {title} | " + " | ".join(cases) + " |", "| --- |" + " ---: |" * len(cases)]
        for engine in ENGINES:
            cells = [
                shown.format(**{"times": 0, "times_cpu": 0, **case[engine]}) if engine in case else ""
                for case in cases.values()
            ]
            if any(cells):
                rows.append(f"| {engine} | " + " | ".join(cells) + " |")
    if "loss" in made:
        rows += ["", "| kind | engine | seven STS sets, average |", "| --- | --- | ---: |"]
        rows += [
            f"| {key.split('/')[2]} | {key.split('/')[1]} | {one['average']:.2f} |" for key, one in made["loss"].items()
        ]
    return "\n".join(rows[1:])


def main() -> None:
    """Do what is missing, one process a measurement, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--cross", help="a trained cross-encoder; without it the model's body under a new head")
    parser.add_argument("--data-dir", help="a folder of the STS data, to measure what is lost")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--test-pairs", type=int, help="measure the loss on a sample of each STS set")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--threads", default=",".join(map(str, THREADS)))
    parser.add_argument("--table", action="store_true", help="print what was measured before")
    parser.add_argument("--json", type=Path, help="also write the medians here")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    if given.one:
        first, *rest = given.one.split("/")
        if first == "loss":
            result = loss(*rest, work=given.work, data_dir=given.data_dir, pairs=given.test_pairs)
        else:
            result = measure(first, rest[0], int(rest[1]), work=given.work, count=given.texts)
        print(json.dumps(result))
        return
    store = given.work / "inference.json"
    done = json.loads(store.read_text()) if store.exists() else {}
    if not given.table:
        prepare(given.model, given.cross, given.work)
        for key in wanted(given):
            if key not in done:
                done[key] = in_a_process(key)
                store.write_text(json.dumps(done, indent=1))
    if given.json:
        given.json.write_text(json.dumps(summary(done), indent=1))
    print(table(done))


def wanted(given: argparse.Namespace) -> list[str]:
    """Return the measurements to make; engines are next to each other, so that a noisy minute hits all."""
    engines = [name for name in given.engines.split(",") if "openvino" not in name or find_spec("openvino")]
    cases = product(range(given.rounds), KINDS, given.threads.split(","), engines)
    keys = [f"{engine}/{kind}/{threads}/{number}" for number, kind, threads, engine in cases]
    if given.data_dir:
        kinds = ("bi", "cross") if given.cross else ("bi",)
        keys += [f"loss/{e}/{kind}" for kind in kinds for e in engines if e in ("ours", "onnx", "onnx-int8")]
    return keys


def in_a_process(key: str) -> dict[str, Any]:
    """Run one measurement in a process with the right number of threads."""
    threads = "2" if key.startswith("loss/") else key.split("/")[2]
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
    print(f"{key} ...", file=sys.stderr)
    command = [sys.executable, *sys.argv, "--one", key]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)


if __name__ == "__main__":
    main()
