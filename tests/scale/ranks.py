"""Two gloo ranks under torchrun: the labels and scores of one process; a rank that dies ends the run cleanly."""

import signal
import time
from pathlib import Path

import numpy as np
import psutil

from scale.laboratory import Laboratory, different_files, final_scores, labels, losses

LABELS = 1e-6
"""What labels of the same models may differ by."""
TRAINED = 5e-4
"""What may differ after training: gradients are summed in another order, GEMMs of half a batch round otherwise on some
CPUs, and Adam divides by small gradients."""


def check_ranks(lab: Laboratory, reference: Path) -> list[str]:
    """Run in two ranks; return how close the result is to that of one process."""
    process = lab.start("ranks", ranks=2)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert output.count("\n") == 1, f"expected one object on standard output, from rank 0 alone; got {output}"
    run = lab.root / "ranks"
    found = {
        "labels of the first bi-encoders": (labels(reference, "bi") - labels(run, "bi"), LABELS),
        "losses of all trainings": (losses(reference) - losses(run), TRAINED),
        "labels of the trained cross-encoders": (labels(reference, "cross") - labels(run, "cross"), TRAINED),
        "scores of the trained bi-encoders": (final_scores(reference) - final_scores(run), TRAINED),
    }
    for name, (difference, allowed) in found.items():
        assert np.abs(difference).max() <= allowed, f"{name} differ by {np.abs(difference).max()}"
    return [
        f"{name} differ by at most {np.abs(each).max():.1e} (allowed: {most:g})" for name, (each, most) in found.items()
    ]


def check_death(lab: Laboratory) -> list[str]:
    """Kill rank 1 in a training; the run must end, and continue to what it would have been."""
    process = lab.start("killed", ranks=2)
    while not list(lab.root.glob("killed/cycle-1/*/bi.training/checkpoint-*/checksums.json")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    (victim,) = (child for child in psutil.Process(process.pid).children() if child.environ().get("RANK") == "1")
    victim.send_signal(signal.SIGKILL)
    _, errors = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "the same command continues" in errors, errors
    again = lab.start("killed", ranks=2)
    _, errors = again.communicate()
    assert again.returncode == 0, errors
    different = different_files(lab.root / "ranks", lab.root / "killed")
    assert not different, different
    return ["rank 1 killed in a training: the run ended, the same command continued it to the same bytes"]
