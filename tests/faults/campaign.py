"""A campaign: every fault in a run of its own, on several cores."""

import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from faults.jobs import Job, other_jobs
from faults.kills import changes, kills
from faults.laboratory import Laboratory, Problem
from faults.plan import Fault, Outcome, suffer
from faults.storage import storage_faults


def all_faults(lab: Laboratory, root: Path, *, seed: int, others: int, times: int, each: int) -> list[Fault]:
    """Return every kill of a run and of the other jobs, and every fault of storage."""
    points = changes(lab, root / "watched")
    files = sorted(name for name in lab.expected if name not in ("config.json", "environment.json"))
    return [
        *kills(lab, points, seed=seed, others=others, times=times),
        *storage_faults(points, seed=seed, each=each, files=files),
        *(
            fault
            for job in other_jobs(lab, root)
            for fault in job_kills(job, root, seed=seed, others=others, times=times // 3)
        ),
    ]


def job_kills(job: Job, root: Path, *, seed: int, others: int, times: int) -> Iterator[Fault]:
    """Yield the kills of a job that is not a run: before and after its writes, at other changes, at random times."""
    points = changes(job, root / f"watched-{job.name}")
    for fault in kills(job, points, seed=seed, others=others, times=times):
        yield Fault(f"{fault.kind}, {job.name}", fault.detail, partial(_inject, fault, job))


def _inject(fault: Fault, job: Job, _lab: Laboratory, folder: Path) -> Problem:
    return fault.inject(job, folder)


def outcomes(lab: Laboratory, root: Path, faults: list[Fault], *, jobs: int) -> Iterator[Outcome]:
    """Suffer all faults; yield what came of each, as it comes."""
    fork = multiprocessing.get_context("fork")
    queue = fork.SimpleQueue()

    def work(share: Iterable[int]) -> None:
        for number in share:
            queue.put(suffer(faults[number], lab, root / f"fault-{number}"))

    workers = [fork.Process(target=work, args=(range(job, len(faults), jobs),)) for job in range(jobs)]
    for worker in workers:
        worker.start()
    yield from (queue.get() for _ in faults)
    for worker in workers:
        worker.join()


def summary(results: list[Outcome]) -> list[str]:
    """Say how many faults of each kind there were, and what was not survived."""
    counts = Counter(result.kind for result in results)
    failed = [result for result in results if result.problem]
    survived = "all survived" if not failed else f"{len(failed)} NOT survived"
    killed = sum(count for kind, count in counts.items() if kind.startswith("killed"))
    return [
        *(f"{count:>6,}  {kind}" for kind, count in sorted(counts.items())),
        *(f"\nNOT SURVIVED: {result.kind}, {result.detail}: {result.problem}" for result in failed),
        f"\n{len(results):,} faults injected, {killed:,} of them kills: {survived}",
    ]
