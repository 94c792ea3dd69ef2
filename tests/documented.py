"""The code blocks of the documentation: what each contains, and whether the programs that it names would take it."""

import argparse
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import typer

from trans_encoder.cli import app
from trans_encoder.paper.catalogue import STUDIES

ROOT = Path(__file__).parent.parent
PROGRAMS = ("trans-encoder", "python", "make", "pip", "docker", "torchrun", "accelerate", ".ci/run", ".ci/versions")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
TARGETS = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
# One write for each program: those in the background record themselves at the same time.
RECORD = """#!/bin/sh
words=$(printf '%s\\037' {name} "$@")
printf '%s\\036' "$words" >> "$RECORD"
"""


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    code: str


class ParsedError(Exception):
    """Raised in the place of what a program does after it has read its arguments."""


def blocks(page):
    """Return the fenced blocks of a Markdown page, in order."""
    text = page.read_text(encoding="utf-8")
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)]


def commands(script, folder):
    """Let bash run a script in a folder with stand-ins for all programs, and return what it would have started."""
    made = folder / "stand-ins"
    for name in PROGRAMS:
        path = folder / name if "/" in name else made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RECORD.format(name=name), encoding="utf-8")
        path.chmod(0o755)
    record = folder / "record"
    record.unlink(missing_ok=True)
    environment = {**os.environ, "PATH": f"{made}:{os.environ['PATH']}", "RECORD": str(record)}
    done = subprocess.run(
        ["bash", "-eu", "-c", f"{script}\nwait"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stderr}"
    lines = record.read_text(encoding="utf-8").split("\036")[:-1] if record.exists() else []
    return [line.split("\037")[:-1] for line in lines]


def shortened(words):
    """Let a training on raw text, given as the words of a command, mine few pairs: ten thousand take a minute."""
    return [*words, "--max-pairs", "64"] if "train" in words and "--text" in words else words


def check(words, monkeypatch):
    """Check that a program exists and takes its arguments, without doing what it does."""
    program, *rest = words
    if program == "trans-encoder":
        _check_command(rest)
    elif program in ("torchrun", "accelerate"):
        check(rest[rest.index("trans-encoder") :], monkeypatch)
    elif program == "python" and rest[0] not in ("-c", "-m"):
        _check_script(rest, monkeypatch)
    elif program == "make":
        assert rest[0] in TARGETS, words
        if rest[0] == "bench" and rest[1:]:
            _check_script(["benchmarks/cycle.py", *shlex.split(rest[1].removeprefix("BENCH_ARGS="))], monkeypatch)
    elif program == "pip":
        named = re.findall(r"(?:trans-encoder|\.)\[(.*?)\]", " ".join(rest))
        assert {extra for names in named for extra in names.split(",")} <= set(EXTRAS), words


def check_block(block):
    """Check a block of data or settings."""
    if block.language == "json":
        json.loads(block.code)
    elif block.language == "toml":
        tomllib.loads(block.code)
    elif block.language == "python":
        compile(block.code, "block", "exec")
    else:
        assert block.language in ("", "text"), block
        started = [line for line in block.code.splitlines() if re.match(r"(trans-encoder|pip|make|python) ", line)]
        assert not started or block.language == "text", "commands belong in blocks that say bash"


def _check_command(words):
    name, *rest = words
    group = typer.main.get_command(app)
    assert name in group.commands, words
    if "--help" not in rest:
        asked = group.commands[name].make_context(name, rest).params
        if name == "experiment" and not asked["list_all"]:
            assert asked["name"] in STUDIES, words


def _check_script(words, monkeypatch):
    read = argparse.ArgumentParser.parse_args

    def parse(self, *given, **named):
        read(self, *given, **named)
        raise ParsedError

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_args", parse)
        patched.setattr(sys, "argv", words)
        patched.syspath_prepend(ROOT / "benchmarks")
        try:
            runpy.run_path(str(ROOT / words[0]), run_name="__main__")
        except ParsedError:
            return
    raise AssertionError(f"{words[0]} reads no arguments")
