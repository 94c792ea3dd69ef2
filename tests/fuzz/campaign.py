"""A campaign: many cases in a forked process, so that a crash or a hang of the reader is one more thing to report."""

import json
import os
import resource
import select
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fuzz.targets import TARGETS

SECONDS = 60.0
"""What a case may take of a CPU before it counts as a hang; on a busy machine that may be long on the clock."""

_WAITS = 10
"""How many times that it may take on the clock; what hangs may need no CPU."""

_MEMORY = 6 << 30
_BOMB_EVERY = 4000


@dataclass
class Outcome:
    """What a campaign did and found."""

    cases: Counter[str] = field(default_factory=Counter)
    surprises: list[str] = field(default_factory=list)
    slowest: float = 0.0


def target_of(case: int, *, seed: int) -> str:
    """Return which target a case is for."""
    if case % _BOMB_EVERY == _BOMB_EVERY - 1:
        return "gzip bombs"
    random = Random(f"{seed} target {case}")
    return random.choices(list(TARGETS), weights=[share for _, share in TARGETS.values()])[0]


def run(cases: Iterable[int], *, seed: int, seconds: float = SECONDS) -> Outcome:
    """Do the cases; whatever one of them does, the others are done too."""
    outcome, left = Outcome(), list(cases)
    while left:
        done = 0
        for event in _forked(left, seed=seed, seconds=seconds):
            case = left[done]
            done += 1
            outcome.cases[target_of(case, seed=seed)] += 1
            outcome.slowest = max(outcome.slowest, event.get("seconds", seconds))
            if event["surprise"]:
                outcome.surprises.append(f"case {case}, {target_of(case, seed=seed)}: {event['surprise']}")
        left = left[done:]
    return outcome


def _forked(cases: list[int], *, seed: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Do cases in a child process until it ends, dies or hangs; yield what came of each."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with open(writer, "w", buffering=1) as pipe:  # noqa: PTH123
            _work(cases, pipe, seed=seed)
        os._exit(0)
    os.close(writer)
    reported, hung, waited, used = 0, False, 0, _cpu_seconds(child)
    with open(reader, buffering=1) as pipe:  # noqa: PTH123
        while reported < len(cases):
            if not select.select([pipe], [], [], seconds)[0]:
                waited += 1
                if waited < _WAITS and _cpu_seconds(child) - used < seconds:
                    continue
                os.kill(child, signal.SIGKILL)
                hung = True
                break
            line = pipe.readline()
            if not line:
                break
            reported, waited, used = reported + 1, 0, _cpu_seconds(child)
            yield json.loads(line)
    _, status = os.waitpid(child, 0)
    if hung:
        yield {"surprise": f"hangs: not done after {seconds:g} seconds"}
    elif reported < len(cases):
        yield {"surprise": f"the process died: {os.waitstatus_to_exitcode(status)}"}


def _cpu_seconds(process: int) -> float:
    """Return the CPU time that a process has used, 0 once it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(cases: list[int], pipe: Any, *, seed: int) -> None:
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + _MEMORY, in_use + _MEMORY))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        tempfile.tempdir = folder  # the process ends without cleaning up what targets make for themselves
        for case in cases:
            begun = os.times().elapsed
            surprise = _one(case, Path(folder), seed=seed)
            pipe.write(json.dumps({"surprise": surprise, "seconds": os.times().elapsed - begun}) + "\n")


def _one(case: int, folder: Path, *, seed: int) -> str | None:
    target, _ = TARGETS[target_of(case, seed=seed)]
    try:
        return target(Random(f"{seed} case {case}"), folder)
    except BaseException:
        return traceback.format_exc(limit=-6)
