"""The long check: `python -m scale`."""

import logging
import tempfile
import time
from pathlib import Path

import typer

from scale.cluster import check_cluster
from scale.laboratory import Laboratory, different_files
from scale.ranks import check_death, check_ranks


def main() -> None:
    """Do one run in every way there is; each must end as the run of one process does."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        lab = Laboratory.build(Path(folder), pairs=403)
        reference = lab.run("reference")

        def workers() -> list[str]:
            different = different_files(reference, lab.run("workers", "--workers", "2"))
            assert not different, different
            return ["the same bytes as the run of one process, file by file"]

        checks = {
            "two gloo ranks under torchrun": lambda: check_ranks(lab, reference),
            "two ranks, one killed": lambda: check_death(lab),
            "two local workers": workers,
            "a Ray cluster of two nodes, one killed": lambda: check_cluster(lab, reference),
        }
        for name, check in checks.items():
            begun = time.perf_counter()
            found = check()
            typer.echo("\n  ".join([f"{name} ({time.perf_counter() - begun:.0f} s)", *found]))
    typer.echo("all ended with the labels and scores of the single-process run")


if __name__ == "__main__":
    typer.run(main)
