"""A real server in a thread, for tests."""

import http.client
import json
import threading
import time
from contextlib import contextmanager

import uvicorn

from trans_encoder.serve.app import make_app
from trans_encoder.serve.service import Service

LOOPBACK = frozenset({"127.0.0.1", "localhost"})


class Client:
    """Sends requests and returns status and JSON."""

    def __init__(self, port):
        self.port = port

    def raw(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read(), dict(response.getheaders())
        finally:
            connection.close()

    def __call__(self, path, body=None, **headers):
        given = {"Content-Type": "application/json"} if body is not None else {}
        content = None if body is None else json.dumps(body)
        method = "GET" if body is None else "POST"
        status, answer, _ = self.raw(method, path, content, given | headers)
        return status, json.loads(answer)


@contextmanager
def running(index, *, duplicates=None, cross=None, token=None, capacity=256):
    """Serve an index on a free port until the block ends."""
    service = Service(index, cross, duplicates)
    app = make_app(service, token=token, hosts=LOOPBACK, capacity=capacity)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.02)
    try:
        yield Client(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(timeout=30)
