"""Lexical mining: peak memory and time by the size of the text, and how they grow.

    python benchmarks/mining.py corpus.txt.gz --sentences 100000 1000000 --pairs-per-sentence 0.1

Each size is mined in a process of its own, so that its peak memory is its own. The memory includes reading the text,
the seconds do not.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from measuring import exponent


def measure(path: Path, sentences: int, pairs: int) -> dict[str, float]:
    """Mine in this process and return what it took."""
    from trans_encoder.data.text import Text
    from trans_encoder.mining import Mix, mine

    text = Text.read(path)
    text = text.sample(min(sentences, len(text)), seed=0)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    mined = mine(text, pairs=pairs, mix=Mix.parse("4,2,2,2,0"))
    return {
        "sentences": mined.sentences,
        "pairs": len(mined.pairs),
        "seconds": round(time.perf_counter() - begun, 1),
        "cpu_seconds": round(time.process_time() - begun_cpu, 1),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sentences", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--pairs", type=int, help="the same number of pairs at every size")
    parser.add_argument("--pairs-per-sentence", type=float, default=0.1)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.text, arguments.sentences[0], arguments.pairs)))
        return
    rows = []
    for sentences in arguments.sentences:
        pairs = arguments.pairs or round(sentences * arguments.pairs_per_sentence)
        command = [sys.executable, __file__, arguments.text, "--sentences", sentences, "--pairs", pairs, "--one"]
        output = subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE).stdout
        rows.append(json.loads(output))
        print(json.dumps(rows[-1]), flush=True)
    sizes = [row["sentences"] for row in rows]
    for what in ("seconds", "cpu_seconds", "peak_gib"):
        print(f"{what} grows as sentences ** {exponent(sizes, [row[what] for row in rows]):.2f}")


if __name__ == "__main__":
    main()
