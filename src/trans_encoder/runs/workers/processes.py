"""Stages side by side in processes of this machine, one for each device."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from trans_encoder.errors import RunError
from trans_encoder.runs.stages import Engine, Spent, Stage
from trans_encoder.runs.workers.here import RESUME, asked_threads, do


@contextmanager
def side_by_side(workers: int) -> Iterator[Engine]:
    """Yield an engine with this number of processes, each with a device of its own where there are several.

    The processes stay for the whole run, because starting one costs seconds. They end with this one, even if it is
    killed: no other process may write to the run folder any longer.
    """
    spawn = get_context("spawn")  # a forked process cannot use CUDA
    end, lifeline = spawn.Pipe(duplex=False)
    numbers = spawn.SimpleQueue()
    for number in range(workers):
        numbers.put(number)
    threads = asked_threads() or max((os.cpu_count() or 1) // workers, 1)
    pool = ProcessPoolExecutor(workers, mp_context=spawn, initializer=_start, initargs=(end, numbers))

    def engine(folder: Path, stages: Sequence[Stage]) -> Iterator[tuple[Stage, Spent]]:
        futures = {
            pool.submit(do, stage.work, folder / stage.name, run=folder, threads=threads): stage for stage in stages
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise RunError(
                f"a worker process was ended from outside, perhaps for want of memory; use fewer (--workers) if so. "
                f"Otherwise, {RESUME}"
            ) from error
        finally:
            for future in futures:
                future.cancel()

    try:
        yield engine
        pool.shutdown()
    finally:
        # After an error workers may be in the middle of a stage: closing the pipe ends them at once.
        lifeline.close()
        pool.shutdown(cancel_futures=True)


def _start(lifeline: Connection, numbers: "SimpleQueue[int]") -> None:
    """Prepare a worker: its device, and its end."""
    import torch

    # Ctrl-C reaches every process of the terminal; the one that owns the run says when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    number = numbers.get()
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())


def _end_with(lifeline: Connection) -> None:
    """Wait until the other end is closed, by the owner of the run or by its death."""
    try:
        lifeline.recv()
    except (EOFError, OSError):
        os._exit(1)
