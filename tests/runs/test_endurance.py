"""Runs leave nothing behind in the process that does them; `benchmarks/load.py` looks at many more."""

import gc
import threading
from pathlib import Path

from conftest import TINY_RUN
from trans_encoder.data.pairs import PairSet
from trans_encoder.encoders.tokens import PairTokeniser
from trans_encoder.pipelines.distil import distil


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_runs_leave_no_files_threads_or_models_behind(bert, pairs, tmp_path):
    def run(number):
        path = tmp_path / f"{number}.arrow"
        pairs.sample(40, seed=number).save(path)
        settings = {**TINY_RUN, "cycles": 1, "formulation": "bi"}
        distil(PairSet.open(path), str(bert), out=tmp_path / f"run-{number}", **settings)
        assert len(PairTokeniser._remembered) <= 8
        PairTokeniser.forget()  # a bounded number of token files is kept on purpose
        gc.collect()
        alive = sum(type(thing).__name__ == "BertModel" for thing in gc.get_objects())
        return open_files(), threading.active_count(), alive

    run(0)
    assert run(1) == run(2) == run(3)
