"""The README's code runs: its Python, its commands in their order, its TOML file and its make targets.

Placeholders: the README's hub names stand for tiny models, `pairs.jsonl`, `dev.jsonl`, `corpus.txt` and `data` for
tiny files.
"""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conftest import graded
from documented import shortened
from trans_encoder.cli import COMMANDS, app
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import TestSet
from trans_encoder.data.writers import write_pairs
from trans_encoder.encoders import load_encoder

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands():
    """Return the lines of all bash blocks, in order, without comments."""
    lines = "".join(blocks("bash")).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture
def workplace(tmp_path, monkeypatch, pairs, dev, sentences):
    """A folder with the files that the README names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("\n".join(sentences[:60]), encoding="utf-8")
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    rows = "".join(f"T{number},{text}\n" for number, text in enumerate(sentences[:20]))
    (tmp_path / "tickets.csv").write_text("ticket,body\n" + rows, encoding="utf-8")
    write_pairs(dev, tmp_path / "dev.jsonl")
    for number, name in enumerate(("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")):
        (tmp_path / "data" / name).mkdir(parents=True)
        for split in ("train", "dev", "test"):
            write_pairs(graded(21, seed=number), tmp_path / "data" / name / f"{split}.jsonl")
    return tmp_path


@pytest.fixture
def locally(bert, roberta):
    """Return a function that puts tiny models in the place of the README's hub names."""
    places = {
        "princeton-nlp/unsup-simcse-bert-base-uncased": bert,
        "princeton-nlp/unsup-simcse-roberta-base": roberta,
        "google-bert/bert-base-uncased": bert,
        "sentence-transformers/all-MiniLM-L6-v2": bert,
        "intfloat/e5-small-v2": bert,
        "BAAI/bge-small-en-v1.5": roberta,
    }

    def substitute(text):
        for name, folder in places.items():
            text = text.replace(name, str(folder))
        return text

    return substitute


def test_the_python_runs(workplace, locally, capsys):
    (code,) = blocks("python")
    exec(compile(locally(code), "README.md", "exec"), {})
    assert "(2, 32)" in capsys.readouterr().out
    assert load_encoder(workplace / "runs" / "python" / "best" / "bi").kind == "bi"


def test_the_lines_of_data_can_be_read(tmp_path):
    unlabelled, labelled = blocks("json")
    (tmp_path / "pairs.jsonl").write_text(unlabelled, encoding="utf-8")
    (tmp_path / "dev.jsonl").write_text(labelled, encoding="utf-8")
    assert len(PairSet.read(tmp_path / "pairs.jsonl")) == 2
    assert TestSet.read(tmp_path / "dev.jsonl").gold.tolist() == [4, 0]


def test_the_commands_run_in_their_order(workplace, locally):
    ours = [words for words in commands() if words[0] == "trans-encoder"]
    assert {words[1] for words in ours} <= {command.__name__ for command in COMMANDS}
    done, bare = [], os.environ.get("BARE_INSTALL")  # set where the wheel is installed alone
    for words in ours:
        result = CliRunner().invoke(app, shortened([locally(word) for word in words[1:]]))
        if bare and re.search(r'pip install "trans-encoder\[\w+\]"', result.stderr):
            continue
        assert result.exit_code == 0, f"{shlex.join(words)}\n{result.output}"
        done.append(words[1])
    assert {"train", "score", "evaluate", "duplicates", "check", "report"} <= set(done)
    if bare:
        return
    for made in (
        "runs/mine/best/bi",
        "runs/team/result.json",
        "mined.jsonl",
        "scored.jsonl",
        "labels.parquet",
        "exported",
        "duplicates/groups.jsonl",
    ):
        assert (workplace / made).exists()


def test_the_file_runs(workplace, locally):
    (content,) = blocks("toml")
    (workplace / "run.toml").write_text(locally(content), encoding="utf-8")
    result = CliRunner().invoke(app, ["train", "run.toml"])
    assert result.exit_code == 0, result.output
    assert (workplace / "runs" / "file" / "result.json").exists()


def test_the_make_targets_exist():
    targets = {word for words in commands() if words[0] == "make" for word in words[1:]}
    assert targets == {"demo", "test"}
    for target in targets | {"setup", "lint"}:
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)


def test_the_presets_are_those_of_the_table():
    from trans_encoder.config import PRESETS

    for name, preset in PRESETS.items():
        (row,) = [line for line in README.splitlines() if line.startswith("|") and f"`{name}`" in line]
        assert f"| {preset['cycles']} | {preset['cross']['epochs']} / {preset['bi']['epochs']} |" in row


def test_the_tree_names_what_is_there_and_all_of_the_package():
    (tree,) = re.findall(r"^```\n(src/trans_encoder/\n.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    package = ROOT / "src" / "trans_encoder"
    named = set()
    for line in tree.splitlines()[1:]:
        place = package if line.startswith("  ") else ROOT
        for name in re.split(r" {3,}", line.strip())[0].split():
            assert (place / name).exists(), name
            named.add(name.rstrip("/"))
    there = {path.name for path in package.iterdir() if path.name[0] not in "_." and path.name != "py.typed"}
    assert there <= named, "add these to the tree in README.md"
