"""SIGKILL: before and after every write, at other changes of the folder, and at random times."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from faults.laboratory import Laboratory, Problem, forked
from faults.plan import Fault
from faults.watching import Change, Watch, at, kill_self


def changes(lab: Laboratory, folder: Path) -> list[Change]:
    """Do the run once and return every change that it makes in its folder."""
    noted = folder.with_suffix(".json")

    def work() -> None:
        seen: list[Change] = []
        Watch(folder, seen.append)
        lab.run(folder)
        noted.write_text(json.dumps([vars(change) for change in seen]))

    ended = forked(work)
    assert ended.code == 0, ended
    return [Change(**change) for change in json.loads(noted.read_text())]


def kills(lab: Laboratory, points: list[Change], *, seed: int, others: int, times: int) -> Iterator[Fault]:
    """Yield kills before and after each write, before a number of other changes, and at random times."""
    writes = [point for point in points if point.is_write]
    for point in writes:
        yield _at_change(point, after=False)
        yield _at_change(point, after=True)
    random = Random(f"{seed} changes")
    rest = [point for point in points if not point.is_write]
    yield from (_at_change(point, after=False) for point in random.sample(rest, min(others, len(rest))))
    yield from (_at_time(Random(f"{seed} time {number}").random(), number) for number in range(times))


def _at_change(point: Change, *, after: bool) -> Fault:
    def inject(lab: Laboratory, folder: Path) -> Problem:
        def work() -> None:
            Watch(folder, at(point.number, kill_self), after=after)
            lab.run(folder)

        ended = forked(work)
        return lab.continued(folder) if ended.killed else f"was not killed: {ended}"

    kind = "write" if point.is_write else "other change"
    place = "/".join(Path(point.place).parts[-3:])
    when = "after" if after else "before"
    return Fault(f"killed {when} a{'n' if kind[0] == 'o' else ''} {kind}", f"{point.number}: {place}", inject)


def _at_time(share: float, number: int) -> Fault:
    def inject(lab: Laboratory, folder: Path) -> Problem:
        seconds = share * lab.seconds
        while not (ended := forked(partial(lab.run, folder), after=seconds)).killed:
            if ended.code != 0:
                return f"was not killed: {ended}"
            # The machine was faster than before: earlier, in a new folder.
            folder, seconds = folder.with_name(folder.name + "x"), seconds / 2
        return lab.continued(folder)

    return Fault("killed at a random time", f"{number}: {share:.0%} of the run", inject)
