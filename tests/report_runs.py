"""Small synthetic run folders, in the documented format, for the tests of the report."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trans_encoder.data.pairs import PairSet
from trans_encoder.report import ModelKey, save_evaluation

HOSTILE = [
    "<script>document.title = 'owned'; window.owned = true</script>",
    "</script></style></title><img src=x onerror='window.owned = true'>",
    "\"' onmouseover='window.owned = true' x=\"",
    "{{ 7 * 7 }} {% raw %} &amp; &lt;b&gt;",
    "https://example.com/tracker.gif <iframe src='https://example.com'></iframe>",
    "endless" * 4000,
    "many words " * 900,
    "مرحبا بالعالم، هذه جملة طويلة من اليمين إلى اليسار",
    "\u202eoverride\u202c and \u2067isolate",
    "emoji 👩‍👩‍👧‍👦 🇪🇺 and z̷̢̛a̵l̶g̷o̸",
    "line\nbreak\tand\u2028separator\x00null",
]
TOPICS = ["cat", "dog", "train", "river", "violin", "market", "engine", "garden", "letter", "storm"]


def write_run(
    path: Path,
    *,
    members: tuple[str, ...] = ("bert",),
    cycles: int = 2,
    pairs: int = 250,
    gain: float = 0.25,
    tests: tuple[str, ...] = ("STS12", "STS13", "SICK-R"),
    seed: int = 0,
    sentences: list[str] | None = None,
) -> Path:
    """Write a finished run whose students are better than their teachers by `gain`."""
    random = np.random.default_rng(seed)
    path.mkdir(parents=True)
    config = {"members": [{"bi": f"models/{name}", "name": name} for name in members], "preset": "small", "seed": seed}
    config |= {"cycles": cycles, "strategy": "refresh", "cross": {"loss": "bce", "learning_rate": 2e-5}}
    (path / "config.json").write_text(json.dumps(config))
    environment = {"python": "3.11.2", "torch": "2.13.0", "device": "cpu"}
    (path / "environment.json").write_text(json.dumps(environment))
    texts = [_pair(random, sentences) for _ in range(pairs)]
    truth = random.random(pairs)
    stages = {"pairs.arrow": _stage(0.2), "start.json": _stage(0.9)}
    start = {"cycle": 0, "kind": "bi", "step": 0, "epoch": 0.0, "loss": None, "score": 71.5}
    history = [start | {"member": name} for name in members]
    for cycle in range(1, cycles + 1):
        for kind in ("bi", "cross"):
            noise = 0.3 / (cycle + (kind == "cross") * gain)
            labels = {name: _noisy(truth, random, noise=noise, low=-0.2 * (kind == "bi")) for name in members}
            _write_labels(path / f"cycle-{cycle}" / f"labels-{kind}.parquet", texts, labels, cycle=cycle, kind=kind)
            stages[f"cycle-{cycle}/labels-{kind}.parquet"] = _stage(1.5 + cycle)
            student = "cross" if kind == "bi" else "bi"
            for name in members:
                stages[f"cycle-{cycle}/{name}/{student}"] = _stage(20 + 31 * (student == "bi"))
                for step in range(50, 401 + 300 * (student == "bi"), 50):
                    score = 70 + 4 * cycle + 3 * gain * np.log(step / 50 + 1) + random.normal(0, 0.3)
                    line = {"cycle": cycle, "member": name, "kind": student, "step": step, "epoch": step / 400}
                    history.append(line | {"loss": 0.5, "score": round(float(score), 3)})
    (path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history))
    (path / "manifest.json").write_text(json.dumps({"version": 1, "origin": {}, "stages": stages}))
    best = {"cycle": cycles, "step": 600, "score": 80.0, "helped": True}
    result = {
        "metric": "spearman",
        "cycles": cycles,
        "members": {
            name: {"source": f"models/{name}", "start_score": 71.5}
            | {kind: best | {"folder": f"best/{kind}"} for kind in ("bi", "cross")}
            for name in members
        },
        "ensemble": {},
        "helped": {"bi": True, "cross": True},
        "summary": "Better bi-encoder: spearman 80.00 on dev, the start 71.50.",
        "notes": ["cycle 1: 12 of 250 labels were outside [0, 1]; the BCE loss clamped them"],
    }
    (path / "result.json").write_text(json.dumps(result))
    for test in tests:
        _evaluate(path, test, members=members, gain=gain, random=random)
    return path


def write_real_run(path: Path, *, bert: Path, pairs: PairSet, dev: PairSet | None) -> Path:
    """Distil a tiny model for one short cycle."""
    from trans_encoder.config import MemberConfig
    from trans_encoder.pipelines.distil import distil

    plan = {"batch_size": 16, "epochs": 1, "dev_steps": 2}
    member = MemberConfig(bi=str(bert), name="bert")
    distil(pairs, member, dev=dev, out=path, cycles=1, cross=plan, bi=plan, device="cpu")
    return path


def widen(run: Path, *, rows: int, characters: int) -> None:
    """Put many and long texts into the label files of a run, piece by piece."""
    piece = 50_000
    text = pa.array([f"{number:0{characters}}" for number in range(piece)])
    for path in run.glob("cycle-*/labels-*.parquet"):
        schema, random = pq.read_schema(path), np.random.default_rng(len(path.name))
        with pq.ParquetWriter(path, schema) as writer:
            for _ in range(rows // piece):
                scores = random.random(piece).astype(np.float32)
                writer.write_table(pa.table([text, text] + [scores] * (len(schema) - 2), schema=schema))


def _pair(random: np.random.Generator, sentences: list[str] | None) -> tuple[str, str]:
    if sentences is not None:
        first, second = random.choice(sentences, 2)
        return str(first), str(second)
    one, other, third = random.choice(TOPICS, 3)
    return f"A {one} stands beside the {other}.", f"The {other} is near a {third}, someone said."


def _noisy(truth: np.ndarray, random: np.random.Generator, *, noise: float, low: float) -> np.ndarray:
    logit = np.log(truth / (1 - truth)) + random.normal(0, 3 * noise, len(truth))
    return (low + (1 - low) / (1 + np.exp(-logit))).astype(np.float32)


def _stage(seconds: float) -> dict[str, object]:
    return {"inputs": {}, "files": {}, "seconds": seconds, "peak_memory_bytes": int(1.4 * 2**30)}


def _write_labels(path: Path, texts: list[tuple[str, str]], labels: dict[str, np.ndarray], *, cycle: int, kind: str):
    first, second = zip(*texts, strict=True)
    mean = np.mean(list(labels.values()), axis=0, dtype=np.float32)
    table = pa.table({"sentence1": first, "sentence2": second, "score": mean, **labels})
    about = {"kind": kind, "teachers": list(labels), "cycle": cycle, "pairs": "abc", "package": "0.1.0"}
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table.replace_schema_metadata({"trans_encoder": json.dumps(about)}), path)


def _evaluate(path: Path, test: str, *, members: tuple[str, ...], gain: float, random: np.random.Generator) -> None:
    gold = np.round(random.random(150) * 5, 1)
    scores = {}
    for name in members:
        for moment, kind, noise in (
            ("start", "bi", 2.0),
            ("best", "bi", 2 - 3 * gain),
            ("best", "cross", 2 - 4 * gain),
        ):
            scores[ModelKey(moment, name, kind)] = gold + random.normal(0, noise, len(gold))
    save_evaluation(path, test, metric="spearman", gold=gold, scores=scores)
