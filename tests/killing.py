"""Killing a run at a chosen write, in a process of its own."""

import multiprocessing
import os
import signal
from pathlib import Path

# Forked, so that each process starts in no time with everything imported.
FORK = multiprocessing.get_context("fork")


class Killer:
    """Kills this process with SIGKILL at its n-th write to a place, just before or just after it takes effect."""

    def __init__(self, write, *, place, after):
        self.left, self.place, self.after = write, place, after

    def __call__(self, source, target):
        self.left -= Path(target).match(self.place)
        if self.left == 0 and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        Path(source).rename(target)
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def in_a_process(work):
    """Do some work in a process of its own and return its exit code."""
    process = FORK.Process(target=work)
    process.start()
    process.join(timeout=120)
    assert process.exitcode is not None, "the process hangs"
    return process.exitcode


def killed(run, folder, *, write=1, place="*", after=False):
    """Go on with a run until it ends (False) or is killed (True)."""

    def work():
        os.replace = Killer(write, place=place, after=after)  # in this process only
        run(folder)

    code = in_a_process(work)
    assert code in (0, -signal.SIGKILL)
    return code != 0


def killed_until_it_ends(run, folder, *, write):
    """Go on with a run that is killed again and again, a different number of writes apart; return how often it was."""
    kills = 0
    while killed(run, folder, write=write + 5 * (kills % 2), after=kills % 3 == 0):
        kills += 1
        assert kills < 40, "the run does not get on"
    return kills
