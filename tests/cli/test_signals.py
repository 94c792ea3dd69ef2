"""SIGINT and SIGTERM end a command cleanly, and the command that the message names continues the run."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from trans_encoder.cli.shell import _stop
from trans_encoder.data.writers import write_pairs

COMMAND = Path(sys.executable).with_name("trans-encoder")


def wait_for(path, process):
    """Wait until a file is there while the process runs."""
    end = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.01)


def test_a_command_that_cannot_continue_does_not_say_so(capsys):
    for command in ("score", "evaluate", "check", None):
        with pytest.raises(typer.Exit):
            _stop(command, code=130)
        assert capsys.readouterr().err == "Stopped.\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_names_the_command_that_continues_it(number, code, pairs, bert, tmp_path):
    write_pairs(pairs, tmp_path / "some pairs.jsonl")
    settings = ["--set", "cycles=1", "--set", "bi.epochs=6", "--set", "cross.epochs=3", "--set", "cross.batch_size=4"]
    arguments = ["train", "--pairs", "some pairs.jsonl", "--model", str(bert), "--out", "run", *settings]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [COMMAND, *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell lets its background jobs ignore SIGINT, and they hand that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_for(tmp_path / "run" / "cycle-1" / "labels-bi.parquet", process)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    assert not (tmp_path / "run" / "result.json").exists()

    (line,) = [line for line in stderr.splitlines() if "To continue: " in line]
    named = shlex.split(line.partition("To continue: ")[2])
    assert named == ["trans-encoder", *arguments]
    continued = subprocess.run(
        [COMMAND, *named[1:], "--json"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(continued.stdout)["members"]
