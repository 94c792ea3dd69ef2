"""Save a bi-encoder and a cross-encoder, load both in other versions of sentence-transformers, and compare the outputs.

Each version needs an environment of its own, for example:

    python -m venv /tmp/st3 && /tmp/st3/bin/pip install "sentence-transformers==3.0.1" "transformers==4.41.2"
    python benchmarks/portability.py --model bert-mini --model ms-marco-MiniLM-L-12-v2 --python /tmp/st3/bin/python

A bare or sentence encoder is saved as both kinds, its cross-encoder with a new head, enlarged; a trained cross-encoder
is saved as it is. Beside the largest difference stands the range of our own probabilities, which says what it is worth.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import torch

from trans_encoder import BiEncoder, CrossEncoder, load_encoder

PAIRS = [
    ("A man is playing a guitar.", "Somebody plays an instrument."),
    ("The stock market fell sharply on Monday.", "A CHEF prepares a meal, slowly."),
    ("Naïve café owners — 100% sure!", "a"),
    (" ".join(["many words"] * 400), "Few words."),
]

LOADED = """
import inspect, json, sys
import numpy, sentence_transformers, torch, transformers
folder = sys.argv[1]
content = json.load(open(folder + "/expected.json"))
embeddings = content["bi"]
if embeddings is not None:
    bi = sentence_transformers.SentenceTransformer(folder + "/bi", device="cpu")
    embeddings = [bi.encode([pair[side] for pair in content["pairs"]]) for side in (0, 1)]
cross = sentence_transformers.CrossEncoder(folder + "/cross", device="cpu")
# A re-ranker keeps its own activation, often none, which versions before 4 do not read: ask for probabilities.
names = inspect.signature(cross.predict).parameters
sigmoid = {"activation_fn" if "activation_fn" in names else "activation_fct": torch.nn.Sigmoid()}
probabilities = cross.predict([tuple(pair) for pair in content["pairs"]], **sigmoid)
def off(found, expected):
    return float(numpy.abs(numpy.asarray(found) - numpy.asarray(expected)).max())
print(json.dumps({
    "versions": [sentence_transformers.__version__, transformers.__version__],
    "bi": None if embeddings is None else off(embeddings, content["bi"]),
    "cross": off(probabilities, content["cross"]),
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, help="a folder of an encoder; repeatable")
    parser.add_argument("--python", action="append", required=True, help="the Python of an environment; repeatable")
    given = parser.parse_args()
    print("| model | sentence-transformers | transformers | bi-encoder | cross-encoder | its probabilities |")
    print("| --- | --- | --- | ---: | ---: | --- |")
    for model in given.model:
        with tempfile.TemporaryDirectory() as folder:
            spread = save(model, Path(folder))
            for python in given.python:
                print(f"| {Path(model).name} | {compared(python, folder)} | {spread} |", flush=True)


def save(model: str, folder: Path) -> str:
    """Save both kinds with what they give; return the range of the probabilities."""
    cross = CrossEncoder.load(model, device="cpu", seed=1)
    trained = load_encoder(model, device="cpu").kind == "cross"
    if not trained:
        enlarge_head(cross)
    cross.save(folder / "cross")
    probabilities = cross.score(PAIRS)
    expected = {"pairs": PAIRS, "cross": probabilities.tolist(), "bi": None}
    if not trained:
        bi = BiEncoder.load(model, device="cpu")
        bi.save(folder / "bi")
        expected["bi"] = [bi.encode([pair[side] for pair in PAIRS]).tolist() for side in (0, 1)]
    (folder / "expected.json").write_text(json.dumps(expected), encoding="utf-8")
    return f"{probabilities.min():.2g} to {probabilities.max():.2g}"


def enlarge_head(cross: CrossEncoder) -> None:
    """Make a new head say something: as it is drawn, it is so flat that wrong tokens would hardly show."""
    with torch.no_grad():
        for name, weight in cross.model.named_parameters():
            if "classifier" in name:
                weight.mul_(30)


def compared(python: str, folder: str) -> str:
    done = subprocess.run([python, "-c", LOADED, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{python} | | {done.stderr.strip().splitlines()[-1]} | "
    found = json.loads(done.stdout.strip().splitlines()[-1])
    bi = "" if found["bi"] is None else f"{found['bi']:.1e}"
    return f"{' | '.join(found['versions'])} | {bi} | {found['cross']:.1e}"


if __name__ == "__main__":
    main()
