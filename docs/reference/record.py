"""Run every command once on small real models, and keep what it prints for the reference.

    python docs/reference/record.py --bi all-MiniLM-L6-v2 --small bert-mini --cross ms-marco-MiniLM-L-12-v2

The arguments are folders of models. Texts are the tutorial's tickets and Python's own documentation. What goes to
standard error (progress, warnings) is left out, and so are `demo`, which takes minutes, and `serve`, which never ends.
"""

import argparse
import contextlib
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

HERE = Path(__file__).parent
OUTPUTS = HERE / "outputs"
COMMANDS = """
trans-encoder index --text tickets.csv --id ticket --model all-MiniLM-L6-v2 --out tickets.index
trans-encoder duplicates tickets.index --out duplicates
trans-encoder search tickets.index "I forgot my password" --top 3
trans-encoder audit duplicates --status
trans-encoder probe all-MiniLM-L6-v2
trans-encoder mine --text questions.txt --pairs 200 --out pairs.jsonl
trans-encoder check --pairs pairs.jsonl --model bert-mini --out runs/mine
trans-encoder train --pairs pairs.jsonl --model bert-mini --set cycles=1 --out runs/mine
trans-encoder bootstrap --text questions.txt --model bert-mini --out start
trans-encoder label all-MiniLM-L6-v2 ms-marco-MiniLM-L-12-v2 --pairs pairs.jsonl --out labels.parquet
trans-encoder learn labels.parquet --model bert-mini --kind bi --out learnt
trans-encoder ensemble runs/mine --out team
trans-encoder score all-MiniLM-L6-v2 --pairs tickets.jsonl
trans-encoder evaluate all-MiniLM-L6-v2 bert-mini --test tickets.jsonl
trans-encoder export all-MiniLM-L6-v2 --to onnx --int8 --out served
trans-encoder report runs/mine
trans-encoder experiment --list
"""
GRADED = """{"sentence1": "How do I reset my password?", "sentence2": "Where can I change my password?", "score": 4}
{"sentence1": "How do I reset my password?", "sentence2": "The parcel came too late", "score": 0}
{"sentence1": "The parcel came too late", "sentence2": "My order is still on its way", "score": 3}
{"sentence1": "Is there a student discount?", "sentence2": "Do students pay less?", "score": 5}
"""


def prepare(folder: Path, models: dict[str, Path]) -> None:
    """Put models and texts where the commands look for them."""
    for name, place in models.items():
        (folder / name).symlink_to(place.resolve(), target_is_directory=True)
    page = (HERE.parent / "tutorials" / "duplicates.md").read_text(encoding="utf-8")
    (tickets,) = re.findall(r'"tickets.csv"\).write_text\("""(.*?)"""', page, flags=re.DOTALL)
    (folder / "tickets.csv").write_text(tickets, encoding="utf-8")
    (folder / "tickets.jsonl").write_text(GRADED, encoding="utf-8")
    sentences = re.split(r"(?<=[.])\s+", " ".join(" ".join(text.split()) for _, text in sorted(topics.items())))
    chosen = [sentence for sentence in sentences if 6 < len(sentence.split()) < 40 and "*" not in sentence][:600]
    (folder / "questions.txt").write_text("\n".join(chosen), encoding="utf-8")


def main() -> None:
    """Run the commands in their order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bi", "small", "cross"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="an empty folder to run in and keep, to take pictures of pages")
    given = parser.parse_args()
    OUTPUTS.mkdir(exist_ok=True)
    with contextlib.nullcontext(given.work) if given.work else tempfile.TemporaryDirectory() as name:
        names = ("all-MiniLM-L6-v2", "bert-mini", "ms-marco-MiniLM-L-12-v2")
        prepare(Path(name), dict(zip(names, (given.bi, given.small, given.cross), strict=True)))
        for line in COMMANDS.strip().splitlines():
            command = shlex.split(line)[1]
            sys.stderr.write(f"{line}\n")
            program = [sys.executable, "-c", "from trans_encoder.cli import main; main()", *shlex.split(line)[1:]]
            done = subprocess.run(program, cwd=name, capture_output=True, encoding="utf-8", check=False)
            if done.returncode:
                raise SystemExit(f"{line}\n{done.stderr}")
            printed = "\n".join(shown.rstrip() for shown in done.stdout.splitlines())
            (OUTPUTS / f"{command}.txt").write_text(f"$ {line}\n{printed}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
