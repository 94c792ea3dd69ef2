"""Commands run as on Windows: no POSIX modules, signals or folder flushes, no renames of open files or UTF-8 pipes."""

import json
import subprocess
import sys

import pytest

from trans_encoder.data.writers import write_pairs
from trans_encoder.encoders import load_encoder

GREEK = "\N{GREEK SMALL LETTER ALPHA} \N{GREEK SMALL LETTER BETA} \N{GREEK SMALL LETTER GAMMA}"
ELSEWHERE = """
import errno, os, pathlib, signal, sys, tempfile

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
opened, renamed, refused, is_held = os.open, pathlib.Path.replace, set(), []

def held(path):
    # Windows neither renames nor removes a file, or a folder with a file, that is open or mapped;
    # its files without a name, which Python makes in another way there, excepted.
    numbers = pathlib.Path("/proc/self/fd").iterdir()
    names = {os.path.realpath(number) for number in numbers}
    maps = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    names |= {parts[5] for parts in (line.split(None, 5) for line in maps) if len(parts) == 6}
    path = os.path.realpath(path)
    return any(name == path or name.startswith(path + "/") for name in names)

def unless_held(do):
    def done(path, *more, dir_fd=None, **named):
        places = [pathlib.Path(f"/proc/self/fd/{dir_fd}" if dir_fd is not None else "", path), *more]
        if any(held(place) for place in places if os.path.dirname(place) != tempfile.gettempdir()):
            is_held.append(do.__name__)
            raise PermissionError(errno.EACCES, "The process cannot access the file", str(path))
        return do(path, *more, **named) if dir_fd is None else do(path, *more, dir_fd=dir_fd, **named)
    return done

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
os.replace, os.rename, os.unlink, os.remove = map(unless_held, (os.replace, os.rename, os.unlink, os.remove))
from trans_encoder.cli import main
sys.stdin.reconfigure(encoding="utf-8")
for stream in (sys.stdout, sys.stderr):
    stream.reconfigure(encoding="cp1252")
for line in sys.stdin.read().splitlines():
    sys.argv = ["trans-encoder", *line.split("\\t")]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
assert refused
assert set(is_held) == {"unlink"}, is_held  # files of the index's earlier state, mapped while the next is written
"""


@pytest.mark.skipif(sys.platform != "linux", reason="takes away what Linux has")
def test_a_run_and_its_uses_do_without_what_posix_adds(pairs, bert, tmp_path):
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    texts = pairs.sentence1.to_pylist()
    for name, chosen in (("texts", texts[:20]), ("more", [GREEK, *texts[10:30]])):
        rows = "".join(f"{text.split()[0]}-{number},{text}\n" for number, text in enumerate(chosen))
        (tmp_path / f"{name}.csv").write_text("id,text\n" + rows, encoding="utf-8")
    train = ["train", "--pairs", "pairs.jsonl", "--model", str(bert), "--max-pairs", "48", "--out", "run"]
    commands = [
        [*train, "--set", "cycles=1", "--set", "bi.epochs=1"],
        ["score", "run/best/cross", "--pairs", "pairs.jsonl", "--out", "scored.jsonl"],
        ["index", "--text", "texts.csv", "--id", "id", "--model", "run/best/bi", "--out", "texts.index"],
        ["duplicates", "texts.index", "--out", "duplicates"],
        ["index", "--text", "more.csv", "--id", "id", "--out", "texts.index"],
        ["search", "texts.index", GREEK, "--top", "40"],
        ["search", "texts.index", GREEK, "--top", "40", "--json"],
        ["duplicates", "texts.index", "--out", "duplicates"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        cwd=tmp_path,
        input="\n".join("\t".join(words) for words in commands),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert GREEK in {hit["text"] for hit in found["hits"]}, "JSON loses nothing"
    assert "? ? ?" in done.stdout, "a table shows what the encoding lacks as question marks"
    assert load_encoder(tmp_path / "run" / "best" / "bi").kind == "bi"
    assert {"scored.jsonl", "texts.index", "duplicates"} <= {path.name for path in tmp_path.iterdir()}
    assert not list(tmp_path.rglob("*.partial"))
