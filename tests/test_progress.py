"""Progress: bars on a terminal, plain lines elsewhere, and a warning never in the middle of a bar."""

import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from trans_encoder import progress
from trans_encoder.cli import COMMANDS, app
from trans_encoder.progress import show_progress

WARNING = """
import logging, time
from trans_encoder.cli.shell import start
from trans_encoder.progress import progress, show_progress

start()
with show_progress(), progress("counting", total=3) as advance:
    advance(1)
    time.sleep(0.3)  # the bar is drawn ten times a second
    logging.getLogger("trans_encoder.test").warning("mind the step")
    time.sleep(0.3)
"""


def lines_of(stderr):
    return [line for line in stderr.splitlines() if line]


def test_without_a_terminal_each_stage_is_one_line_and_time_gives_more(monkeypatch, capsys):
    now = [0.0]
    display = progress._Lines(clock=lambda: now[0])
    for seconds in (10, 10):  # the second round is not a new stage
        with display.stage("scoring", total=4000) as advance:
            for _ in range(4):
                now[0] += seconds
                advance(1000)
    assert lines_of(capsys.readouterr().err) == [
        "scoring: 4,000",
        "scoring: 3,000 of 4,000, about 10.0 s remaining",
        "scoring: 2,000 of 4,000, about 20.0 s remaining",
    ]


def test_work_with_nothing_to_do_is_not_mentioned(capsys):
    with show_progress(), progress.progress("parts of the stage", total=0):
        pass
    assert capsys.readouterr().err == ""


def test_a_command_without_a_terminal_says_what_it_does_on_standard_error(bert, tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"sentence1": "a boat", "sentence2": "the boat"}\n', encoding="utf-8")
    given = ["score", str(bert), "--kind", "bi", "--pairs", str(tmp_path / "pairs.jsonl")]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0
    assert f"encoding with {bert}: 2" in lines_of(done.stderr)
    assert len(done.stdout.splitlines()) == 1


def test_a_library_call_is_silent(capsys):
    with progress.progress("scoring", total=2) as advance:
        advance(2)
    assert capsys.readouterr().err == ""


def test_a_block_inside_another_shows_its_work_once(capsys):
    with show_progress(), show_progress(), progress.progress("scoring", total=2):
        pass
    assert lines_of(capsys.readouterr().err) == ["scoring: 2"]


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are of POSIX")
def test_a_warning_while_a_bar_is_drawn_begins_on_its_own_line():
    import pty

    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen([sys.executable, "-c", WARNING], stderr=child, env=environment)
    os.close(child)
    seen = b""
    try:
        while part := os.read(parent, 4096):
            seen += part
    except OSError:  # what Linux says when the other side is closed
        pass
    assert process.wait() == 0
    os.close(parent)
    before, found, _ = seen.decode().partition("mind the step")
    assert found
    assert "counting" in before, "no bar was drawn before the warning"
    # Left of the warning on its line there is nothing but what moves the cursor, erases and colours.
    line = re.split(r"\r|\n|\x1b\[2K", before)[-1]
    assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) == ""


@pytest.mark.parametrize("command", [None, *(command.__name__ for command in COMMANDS)])
def test_help_shows_no_type_beside_a_flag(command):
    shown = CliRunner().invoke(app, [*([command] if command else []), "--help"])
    assert shown.exit_code == 0
    assert "--help" in shown.stdout
    assert "bool" not in shown.stdout.lower()
