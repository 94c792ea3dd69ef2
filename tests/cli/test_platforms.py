"""Commands run where POSIX modules, signals and folder flushes are missing, as on Windows."""

import subprocess
import sys

import pytest

from trans_encoder.data.writers import write_pairs
from trans_encoder.encoders import load_encoder

ELSEWHERE = """
import errno, os, pathlib, signal, sys

sys.modules["fcntl"] = None
import filelock  # takes its locks without it

del sys.modules["fcntl"]
import accelerate, sentence_transformers, torch.distributed, transformers.trainer  # they ask for the platform's name

for module in ("fcntl", "grp", "pwd", "resource", "syslog", "termios"):
    sys.modules[module] = None
for name in {"SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGUSR2"}:
    delattr(signal, name)
for name in ("chown", "fork", "geteuid", "getuid", "killpg", "nice", "sched_getaffinity", "uname"):
    delattr(os, name)
opened, renamed, refused = os.open, pathlib.Path.replace, set()

def no_folders(path, flags, *more, **named):
    if pathlib.Path(path).is_dir():
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return opened(path, flags, *more, **named)

def once_refused(self, target):
    if self not in refused:
        refused.add(self)
        raise PermissionError(errno.EACCES, "The process cannot access the file", str(self))
    return renamed(self, target)

os.open, pathlib.Path.replace = no_folders, once_refused
from trans_encoder.cli import main
for line in sys.stdin.read().splitlines():
    sys.argv = ["trans-encoder", *line.split("\\t")]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
assert refused
"""


@pytest.mark.skipif(sys.platform != "linux", reason="takes away what Linux has")
def test_a_run_and_its_uses_do_without_what_posix_adds(pairs, bert, tmp_path):
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    (tmp_path / "texts.txt").write_text("\n".join(pairs.sentence1.to_pylist()[:20]), encoding="utf-8")
    train = ["train", "--pairs", "pairs.jsonl", "--model", str(bert), "--max-pairs", "48", "--out", "run"]
    commands = [
        [*train, "--set", "cycles=1", "--set", "bi.epochs=1"],
        ["score", "run/best/cross", "--pairs", "pairs.jsonl", "--out", "scored.jsonl"],
        ["index", "--text", "texts.txt", "--model", "run/best/bi", "--out", "texts.index"],
        ["duplicates", "texts.index", "--out", "duplicates"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        cwd=tmp_path,
        input="\n".join("\t".join(words) for words in commands),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert load_encoder(tmp_path / "run" / "best" / "bi").kind == "bi"
    assert {"scored.jsonl", "texts.index", "duplicates"} <= {path.name for path in tmp_path.iterdir()}
    assert not list(tmp_path.rglob("*.partial"))
