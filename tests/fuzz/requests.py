"""Malformed requests to a server of an index, over real HTTP."""

import json
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from random import Random

from fuzz.answers import Letters, sound_answers
from fuzz.mutation import mutate
from fuzz.reading import Surprise
from serving import Client, running
from trans_encoder.answers.index import Index
from trans_encoder.answers.retrieval import Embedder

_BODIES = (
    ("/same", {"text": "the flight", "top": 2}),
    ("/search", {"text": "the flight", "top": 2, "where": 'year == 1 and not status in ["a"]'}),
    ("/compare", {"text1": "a boat", "text2": "a wooden boat"}),
    ("/rerank", {"query": "a boat", "texts": ["the flight", "a wooden boat"], "return_text": True}),
    ("/v1/embeddings", {"input": ["a boat", "the flight"], "encoding_format": "base64"}),
    ("/audit/answer", {"number": 0, "answer": "same"}),
    ("/audit/undo", {}),
)
_open = ExitStack()


@cache
def _client() -> Client:
    """Start a server in this process; it ends with it."""
    root = sound_answers()
    index = Index.open(root / "index")
    index._embedder = Embedder((Letters(),))
    return _open.enter_context(running(index, duplicates=root / "duplicates"))


def requests(random: Random, _folder: Path) -> Surprise:
    """Send one malformed request: it is answered or refused with a reason, and the server lives on."""
    path, body = random.choice(_BODIES)
    if random.random() < 0.5:
        name = random.choice([*body, "other"])
        body = {
            **body,
            name: random.choice((None, "", "\0", 0, -1, 10**30, 1e308, True, [], {}, [["a"]], "x" * 20_000)),
        }
    content = json.dumps(body).encode()
    content = mutate(random, content) if random.random() < 0.7 else content
    header = {"Content-Type": random.choice(("application/json", "application/json", "text/plain", "é"))}
    status, answer, _ = _client().raw(random.choice(("POST", "POST", "POST", "PUT")), path, content, header)
    if status >= 500:
        return f"{path} answered {status}: {answer[:500]!r}"
    if status >= 400 and not json.loads(answer).get("error"):
        return f"{path} refused without a reason: {answer[:500]!r}"
    health, _ = _client()("/health")
    return None if health == 200 else f"after it /health answered {health}"
