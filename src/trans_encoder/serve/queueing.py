"""A bounded queue of work: concurrent requests of one kind are done together, in one thread that owns the models."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

Handler = Callable[[Sequence[Any]], Sequence[Any]]
"""From the items of several requests to one result for each."""


class BusyError(Exception):
    """The queue is full."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    kind: str
    item: Any
    result: "asyncio.Future[Any]"


class WorkQueue:
    """A bounded queue that hands waiting items of one kind to their handler as a batch."""

    def __init__(self, handlers: Mapping[str, Handler], *, capacity: int = 256, batch: int = 32) -> None:
        """Hold at most `capacity` waiting items and do at most `batch` at once."""
        self._handlers, self._capacity, self._batch = handlers, capacity, batch
        self._waiting: deque[_Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="models")
        self._loop: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()

    def start(self) -> None:
        """Begin to work, in the running event loop."""
        self._loop = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """End the work; what waits is cancelled."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        for one in self._waiting:
            one.result.cancel()
        await asyncio.to_thread(self._thread.shutdown)

    def __len__(self) -> int:
        return len(self._waiting)

    async def submit(self, kind: str, item: Any) -> Any:
        """Return the handler's result for an item; raise `BusyError` at once if the queue is full."""
        if len(self._waiting) >= self._capacity:
            raise BusyError
        waiting = _Waiting(kind, item, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.result

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            batch = self._next()
            if not batch:
                self._arrived.clear()
                continue
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._handle, batch)
            for one, result in zip(batch, results, strict=True):
                if one.result.done():
                    continue  # whoever asked has gone
                if isinstance(result, Exception):
                    one.result.set_exception(result)
                else:
                    one.result.set_result(result)

    def _next(self) -> list[_Waiting]:
        """Take the first item and others of its kind from the queue."""
        batch: list[_Waiting] = []
        rest: deque[_Waiting] = deque()
        while self._waiting:
            one = self._waiting.popleft()
            if one.result.done():
                continue
            if len(batch) < self._batch and (not batch or one.kind == batch[0].kind):
                batch.append(one)
            else:
                rest.append(one)
        self._waiting = rest
        return batch

    def _handle(self, batch: Sequence[_Waiting]) -> Sequence[Any]:
        """Handle items together; if that fails, one by one, so that a bad item spoils no other request."""
        handler = self._handlers[batch[0].kind]
        try:
            return handler([one.item for one in batch])
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [result for one in batch for result in self._handle([one])]
