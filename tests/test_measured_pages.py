"""The commands beside measured tables run, on tiny models and texts that stand in for the real ones.

The pages name trainings of hours. Each command of a kind (the same options and settings) runs once, as it is written
but for the number of pairs and cycles. `experiment` has tests of its own (tests/paper), Ray and torchrun theirs
(tests/scale), and so has the storage of indexes, for which a folder stands here.
"""

import gzip
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conftest import graded
from documented import blocks, commands
from trans_encoder.cli import app
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.writers import write_pairs

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ("results", "scaling", "selection", "studies")
MODELS = {
    "bert": ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "bert-mini", "ms-marco-MiniLM-L-12-v2", "A"),
    "roberta": ("bge-small-en-v1.5", "BAAI/bge-small-en-v1.5", "e5-small", "tinybert-4l", "potion-base-8M", "B"),
}
"""The folders that the pages name, by the tiny model that stands in for them."""
SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "mrpc", "qnli", "qqp")
ELSEWHERE = {"experiment", "serve"}


def tab_separated(pairs: PairSet, *, is_binary: bool = False) -> bytes:
    """Return scored pairs as the lines of a file of the plain format."""
    scores = [round(score) if is_binary else score for score in pairs.scores.tolist()]
    rows = zip(pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist(), scores, strict=True)
    return "\n".join(["sentence1\tsentence2\tscore", *("\t".join(map(str, row)) for row in rows), ""]).encode()


def write_data(folder: Path) -> None:
    """Write a small data set for every task."""
    for number, name in enumerate(SETS):
        (folder / name).mkdir(parents=True)
        content = tab_separated(graded(24, seed=number), is_binary=name in ("mrpc", "qnli", "qqp"))
        for split in ("train", "dev", "test"):
            (folder / name / f"{split}.tsv.gz").write_bytes(gzip.compress(content))


@pytest.fixture
def workplace(tmp_path, monkeypatch, bert, roberta, pairs, sentences):
    """A folder with the models, data and texts that the pages name."""
    monkeypatch.chdir(tmp_path)
    for model, names in zip((bert, roberta), MODELS.values(), strict=True):
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).symlink_to(model, target_is_directory=True)
    write_data(tmp_path / "DATA")
    text = "\n".join(sentences)
    (tmp_path / "DATA" / "wiki").mkdir()
    (tmp_path / "DATA" / "wiki" / "en_100k.txt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "texts.txt").write_text(text, encoding="utf-8")
    rows = "".join(f"T{number},{each}\n" for number, each in enumerate(sentences[:20]))
    for name in ("tickets", "new"):
        (tmp_path / f"{name}.csv").write_text("ticket,body\n" + rows, encoding="utf-8")
    (tmp_path / "pool.tsv").write_bytes(tab_separated(graded(40, seed=0)))
    (tmp_path / "shards").mkdir()
    write_pairs(pairs, tmp_path / "shards" / "part.parquet")
    return tmp_path


def kind_of(words: list[str]) -> tuple[str, ...]:
    """Return what a command has in common with others that need not run as well."""
    options = {word for word in words if word.startswith("--")}
    settings = {word.partition("=")[0] for before, word in pairwise(words) if before == "--set"}
    made = words[words.index("--out") + 1] if words[1] == "bootstrap" else ""  # later commands begin with it
    return (words[1], made, *sorted(options | settings))


def distinct(found: list[list[str]]) -> list[list[str]]:
    """Return the first command of each kind that runs here, in order."""
    first: dict[tuple[str, ...], list[str]] = {}
    for words in found:
        if words[0] == "trans-encoder" and words[1] not in ELSEWHERE and "--engine" not in words:
            first.setdefault(kind_of(words), words)
    return list(first.values())


def shortened(words: list[str]) -> list[str]:
    """Let a training learn from few pairs, once; what goes to the root or to a storage is written beside the rest."""
    words = [word.removeprefix("/").removeprefix("s3://") for word in words]
    if "--max-pairs" in words:
        words[words.index("--max-pairs") + 1] = "40"
    elif "train" in words:
        words += ["--max-pairs", "40"]
    if "train" in words and not any(word.startswith("cycles=") for word in words):
        words += ["--set", "cycles=1"]
    return words


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_beside_the_tables_run(page, workplace):
    script = "".join(block.code for block in blocks(DOCS / f"{page}.md") if block.language == "bash")
    ours = distinct(commands(script, workplace))
    assert ours
    for words in ours:
        done = CliRunner().invoke(app, shortened(words[1:]))
        assert done.exit_code == 0, f"{shlex.join(words)}\n{done.output}"
