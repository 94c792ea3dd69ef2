"""Storage that fails: full, read-only, gone, altered, or wanted by two."""

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random

from faults.laboratory import Ended, Laboratory, Problem, forked, stages
from faults.plan import Fault
from faults.watching import Change, Watch, at, kill_self

_PAGE = 4096


@cache
def can_mount() -> bool:
    """Say whether this process may mount a small disk of its own."""
    return os.geteuid() == 0 and subprocess.run(["mount", "--version"], capture_output=True).returncode == 0


@contextmanager
def disk(folder: Path, *, size: int) -> Iterator[None]:
    """Mount an empty disk of a given size inside this block."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def remount(folder: Path, options: str) -> None:
    """Change a mounted disk."""
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def refusal(ended: Ended, *expected: str) -> Problem:
    """Demand that a run ended with an error of ours that says all this."""
    if ended.code != 1:
        return f"no error of ours: {ended}"
    missing = [text for text in expected if text not in ended.error]
    return f"the error does not say {missing}: {ended.error}" if missing else None


def full(share: float) -> Fault:
    """Make the disk, or a file, as large as a share of what the run needs."""

    def on_disk(lab: Laboratory, folder: Path) -> Problem:
        needed = sum(_PAGE * (1 + len(content) // _PAGE) for content in lab.expected.values())
        with disk(folder.parent, size=int(needed * share)):
            ended = forked(lambda: lab.run(folder))
            problem = refusal(ended, "cannot write to", "No space left", "the same command continues")
            remount(folder.parent, f"size={4 * needed}")
            return problem or _mended(lab, folder)

    def in_a_file(lab: Laboratory, folder: Path) -> Problem:
        largest = int(share * max(map(len, lab.expected.values())))

        def work() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
            lab.run(folder)

        return refusal(forked(work), "cannot write to", "the same command continues") or _mended(lab, folder)

    return Fault("full disk", f"{share:.0%} of what is needed", on_disk if can_mount() else in_a_file)


def _mended(lab: Laboratory, folder: Path) -> Problem:
    """Continue, and demand that no stage that was finished is done again."""
    manifest = folder / "manifest.json"
    before = stages(folder, times=True) if manifest.exists() else {}
    problem = lab.continued(folder)
    after = stages(folder, times=True) if problem is None else {}
    again = [name for name in before if before[name] != after.get(name)]
    return problem or (f"done again: {again}" if again else None)


def read_only(change: Change) -> Fault:
    """Make the folder of a begun run read-only."""

    def inject(lab: Laboratory, folder: Path) -> Problem:
        with disk(folder.parent, size=1 << 26):
            forked(lambda: (Watch(folder, at(change.number, kill_self)), lab.run(folder)))
            remount(folder.parent, "ro")
            problem = refusal(forked(lambda: lab.run(folder)), "cannot write to", "Read-only file system")
            remount(folder.parent, "rw")
            return problem or lab.continued(folder)

    return Fault("read-only folder", f"from change {change.number}", inject)


def vanished(change: Change, *, comes_back: bool) -> Fault:
    """Take the run folder away while the run is at work."""

    def inject(lab: Laboratory, folder: Path) -> Problem:
        away = folder.with_name("away")

        def work() -> None:
            Watch(folder, at(change.number, lambda: folder.rename(away)))
            lab.run(folder)

        problem = refusal(forked(work), f"{folder} has vanished", "the same command continues")
        if (folder / "manifest.json").exists():
            return problem or "went on in a new folder"
        # What was being written when the folder went away may be in its place.
        shutil.rmtree(folder, ignore_errors=True)
        if comes_back:
            away.rename(folder)
        return problem or lab.continued(folder)

    return Fault("vanished folder", f"at change {change.number}, {'comes' if comes_back else 'never'} back", inject)


def altered(name: str, *, how: str, seed: int) -> Fault:
    """Damage a file of a finished run; what is not healed must be named, and heal once it is removed."""

    def inject(lab: Laboratory, folder: Path) -> Problem:
        lab.copy(folder)
        damage(folder / name, how=how, random=Random(f"{seed} {name} {how}"))
        ended = forked(lambda: lab.run(folder))
        if ended.code == 0:
            return lab.difference(folder)
        problem = refusal(ended, str(folder))
        (folder / name).unlink(missing_ok=True)
        return problem or lab.continued(folder)

    return Fault("damaged file", f"{name} {how}", inject)


def damage(path: Path, *, how: str, random: Random) -> None:
    """Flip a bit of a file, cut it, empty it, fill it with zeros or remove it."""
    content = bytearray(path.read_bytes())
    match how:
        case "flipped":
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        case "cut":
            del content[random.randrange(len(content)) :]
        case "emptied":
            content.clear()
        case "zeroed":
            content[:] = bytes(len(content))
        case "removed":
            path.unlink()
            return
    path.write_bytes(content)


def altered_checkpoint(change: Change, *, how: str, seed: int) -> Fault:
    """Kill a training when it is done but not yet saved, then damage a file of its last checkpoint."""

    def inject(lab: Laboratory, folder: Path) -> Problem:
        forked(lambda: (Watch(folder, at(change.number, kill_self)), lab.run(folder)))
        files = sorted(path for path in folder.rglob("*.training/checkpoint-*/*") if path.is_file())
        if not files:
            return "there is no checkpoint to damage"
        random = Random(f"{seed} checkpoint {change.number} {how}")
        damage(random.choice(files), how=how, random=random)
        return lab.continued(folder)

    return Fault("damaged checkpoint", f"{how}, at change {change.number}", inject)


def both_copies(change: Change) -> Fault:
    """Start a second process on the folder of a run that is at work."""

    def inject(lab: Laboratory, folder: Path) -> Problem:
        met = folder.with_name("met")

        def second() -> None:
            problem = refusal(forked(lambda: lab.run(folder)), "another process is working in")
            met.write_text(problem or "refused")

        forked(lambda: (Watch(folder, at(change.number, second)), lab.run(folder)))
        said = met.read_text()
        return lab.difference(folder) if said == "refused" else said

    return Fault("two processes", f"at change {change.number}", inject)


def changed(name: str, value: object) -> Fault:
    """Continue a finished run with another setting."""

    def inject(lab: Laboratory, folder: Path) -> Problem:
        lab.copy(folder)
        ended = forked(lambda: lab.run(folder, **{name: value}))
        return refusal(ended, f"{name}", "was begun with other settings or inputs", "--out") or lab.difference(folder)

    return Fault("changed settings", name, inject)


def storage_faults(points: list[Change], *, seed: int, each: int, files: list[str]) -> Iterator[Fault]:
    """Yield a number of faults of every kind."""
    random = Random(f"{seed} storage")
    begun = [point for point in points if point.number > 12]
    trained = [point for point in points if point.is_write and Path(point.place).name in ("bi", "cross")]
    trained = [point for point in trained if "cycle-" in point.place]
    yield from (full((number + 0.5) / each * 0.9) for number in range(each))
    if can_mount():
        yield from (read_only(point) for point in random.sample(begun, each))
    yield from (vanished(point, comes_back=number % 2 == 0) for number, point in enumerate(random.sample(begun, each)))
    yield from (both_copies(point) for point in random.sample(begun, each))
    for number in range(each):
        how = ("flipped", "cut", "emptied", "zeroed", "removed")[number % 5]
        yield altered_checkpoint(random.choice(trained), how=how, seed=seed + number)
        yield from (altered(name, how=how, seed=seed + number) for name in random.sample(files, 3))
        yield altered(random.choice(("manifest.json", "config.json", "environment.json")), how=how, seed=seed + number)
    settings = {
        "cycles": 3,
        "strategy": "sequential",
        "seed": 1,
        "anchor": 0.5,
        "bi": {"epochs": 7},
        "both_orders": True,
    }
    yield from (changed(name, settings[name]) for name in list(settings)[:each])
