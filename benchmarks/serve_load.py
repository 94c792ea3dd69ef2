"""Load on a running server, on this machine only: requests of `/same` at a fixed rate, then malformed requests.

    trans-encoder serve INDEX --port 8000 &
    python benchmarks/serve_load.py --port 8000 --pid $! --texts texts.txt --rate 200 --seconds 600 --malformed 10000

Requests are sent when they are due, whether earlier ones were answered or not, so that a slow server looks slow.
"""

import argparse
import asyncio
import json
import random
import time
from pathlib import Path

import numpy as np

PATHS = ("/same", "/search", "/compare", "/rerank", "/v1/embeddings", "/audit/answer", "/nowhere")


class Connections:
    """A pool of kept-alive connections that speaks just enough HTTP.

    A server may close a connection that is not used for some time, just when a request is sent on it. As every HTTP
    client does, the request is then sent again on a new connection; `again` counts these.
    """

    def __init__(self, port, limit=64):
        self.port, self.free, self.slots, self.again = port, [], asyncio.Semaphore(limit), 0

    async def post(self, path, body):
        async with self.slots:
            while self.free:
                reader, writer = self.free.pop()
                try:
                    return await self._send(reader, writer, path, body)
                except (asyncio.IncompleteReadError, ConnectionError) as error:
                    writer.close()
                    if getattr(error, "partial", b""):
                        raise
                    self.again += 1
            return await self._send(*await asyncio.open_connection("127.0.0.1", self.port), path, body)

    async def _send(self, reader, writer, path, body):
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        header = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(header.split(" ", 2)[1])
        length = [line for line in header.split("\r\n") if line.startswith("content-length:")]
        if length:
            await reader.readexactly(int(length[0].split(":")[1]))
        if length and "connection: close" not in header:
            self.free.append((reader, writer))
        else:
            writer.close()
        return status


def memory_mib(pid):
    """Return the resident memory of a process, if it was named."""
    if pid is None:
        return None
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * 4096 / 2**20, 1)


async def hold_rate(pool, texts, *, rate, seconds, pid):
    """Send `/same` at a rate; return latencies from when each was due, and memory over time."""
    latencies, statuses, memory = [], {}, []

    async def one(due, text):
        try:
            status = await pool.post("/same", json.dumps({"text": text, "top": 1}).encode())
        except (asyncio.IncompleteReadError, OSError) as error:
            status = f"no answer: {type(error).__name__}"
        statuses[status] = statuses.get(status, 0) + 1
        latencies.append(time.perf_counter() - due)

    start, tasks, random_ = time.perf_counter(), set(), random.Random(0)
    for number in range(rate * seconds):
        due = start + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(one(due, random_.choice(texts)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        if number % (rate * max(seconds // 10, 1)) == 0:
            memory.append(memory_mib(pid))
    await asyncio.gather(*tasks)
    spent = time.perf_counter() - start
    p50, p95, p99 = np.percentile(np.array(latencies) * 1000, [50, 95, 99]).round(1).tolist()
    return {
        "sent": len(latencies), "per_second": round(len(latencies) / spent, 1), "statuses": statuses,
        "sent_again": pool.again, "ms": {"p50": p50, "p95": p95, "p99": p99}, "memory_mib": [*memory, memory_mib(pid)],
    }  # fmt: skip


def malformed(chance):
    """Return a path and a body that is wrong in one way or another."""
    sound = json.dumps(
        {"text": "a b", "text1": "a", "text2": "b", "query": "q", "texts": ["a"], "input": "a", "number": 0}
    )
    body = bytearray(sound.encode())
    kind = chance.randrange(5)
    if kind == 0:
        body = body[: chance.randrange(len(body))]
    elif kind == 1:
        for _ in range(chance.randint(2, 20)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        body[0] = ord("<")
    elif kind == 2:
        body = bytearray(chance.choice([b"null", b"[]", b"1e999", b"NaN", b'"x"', b"[" * 5000, b"", b"\xff" * 40]))
    elif kind == 3:
        wrong = chance.choice([None, 7, [], {}, "", " ", "\ud800", "x" * 20_000, True, [["a"]], [1], ["a"] * 1000])
        fields = ("text", "text1", "query", "texts", "input", "number")
        body = bytearray(json.dumps(dict.fromkeys(fields, wrong)).encode())
    else:
        body = bytearray(b'{"text": "a", "top": -1, "where": "((("}')
    return chance.choice(PATHS), bytes(body)


async def send_malformed(pool, number):
    """Send malformed requests, 16 at a time; return how often each status came."""
    chance, statuses = random.Random(0), {}
    for _ in range(0, number, 16):
        found = await asyncio.gather(*(asyncio.wait_for(pool.post(*malformed(chance)), 30) for _ in range(16)))
        for status in found:
            statuses[status] = statuses.get(status, 0) + 1
    return statuses


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--pid", type=int)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--malformed", type=int, default=10_000)
    options = parser.parse_args()
    pool = Connections(options.port)
    texts = options.texts.read_text(encoding="utf-8").splitlines()[:10_000]
    load = await hold_rate(pool, texts, rate=options.rate, seconds=options.seconds, pid=options.pid)
    statuses = await send_malformed(pool, options.malformed)
    print(json.dumps({"load": load, "malformed": statuses, "memory_mib": memory_mib(options.pid)}, indent=2))


if __name__ == "__main__":
    asyncio.run(main())
