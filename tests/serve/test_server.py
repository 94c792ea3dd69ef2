"""The server over real HTTP: its answers, its limits, and what it refuses."""

import base64
import http.client
import json
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from typer.testing import CliRunner

from killing import FORK
from serving import Client, running
from trans_encoder.answers.audit import Audit
from trans_encoder.answers.duplicates import find_duplicates
from trans_encoder.answers.index import build_index
from trans_encoder.cli import app
from trans_encoder.data.corpus import Corpus

HOSTILE = "<img src=x onerror=alert(1)>"
TOKEN = "a token of some length"


@pytest.fixture(scope="module")
def texts(sentences):
    some = list(dict.fromkeys(sentences))[:30]
    return [*some, *(f"{text} near" for text in some[:10]), HOSTILE]


@pytest.fixture(scope="module")
def index(tmp_path_factory, static, texts):
    ids = [f"T{number}" for number in range(len(texts))]
    return build_index(
        Corpus.from_texts(texts, ids=ids), tmp_path_factory.mktemp("served") / "index", models=[str(static)]
    )


@pytest.fixture(scope="module")
def duplicates(tmp_path_factory, index):
    folder = tmp_path_factory.mktemp("served") / "duplicates"
    find_duplicates(index).save(folder)
    return folder


@pytest.fixture(scope="module")
def client(index, duplicates):
    with running(index, duplicates=duplicates) as client:
        yield client


def test_it_says_that_it_lives(client, texts):
    status, answer = client("/health")
    assert (status, answer["status"], answer["rows"]) == (200, "ok", len(texts))


def test_embeddings_have_openais_form_and_are_those_of_the_index(client, index, texts):
    status, answer = client("/v1/embeddings", {"input": texts[:3], "model": "any"})
    assert status == 200
    assert [one["index"] for one in answer["data"]] == [0, 1, 2]
    vectors = np.array([one["embedding"] for one in answer["data"]])
    np.testing.assert_allclose(vectors, index.embedder.encode(texts[:3]), atol=1e-6)
    _, one = client("/v1/embeddings", {"input": texts[0], "encoding_format": "base64"})
    packed = np.frombuffer(base64.b64decode(one["data"][0]["embedding"]), dtype="<f4")
    np.testing.assert_allclose(packed, vectors[0], atol=1e-6)


def test_rerank_has_teis_form_best_first(client, texts):
    status, answer = client(
        "/rerank", {"query": texts[0], "texts": [texts[5], texts[0], texts[7]], "return_text": True}
    )
    assert status == 200
    assert answer[0]["index"] == 1
    assert answer[0]["text"] == texts[0]
    assert [one["score"] for one in answer] == sorted((one["score"] for one in answer), reverse=True)


def test_search_and_same_find_a_text_that_is_there(client, texts):
    status, answer = client("/search", {"text": texts[3], "top": 5})
    assert (status, answer["hits"][0]["id"]) == (200, "T3")
    status, answer = client("/same", {"text": texts[3]})
    assert (status, answer["same"], answer["hits"][0]["id"]) == (200, True, "T3")
    assert len(answer["hits"]) == 3


def test_many_at_once_get_each_their_own_answer(client, texts):
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda text: client("/same", {"text": text, "top": 1}), texts * 3))
    assert {status for status, _ in answers} == {200}
    assert [answer["hits"][0]["text"] for _, answer in answers] == texts * 3


def test_compare_says_what_the_model_thinks(client, texts):
    status, answer = client("/compare", {"text1": texts[0], "text2": texts[0]})
    assert status == 200
    assert answer[0]["kind"] == "bi"
    assert answer[0]["score"] == pytest.approx(1, abs=1e-3)


def test_groups_come_with_their_texts(client, texts):
    status, answer = client("/groups?offset=0&limit=2")
    assert status == 200
    assert len(answer["groups"]) == min(2, answer["total"])
    for row in answer["groups"][0]["rows"]:
        assert row["text"] == texts[int(row["id"][1:])]


def test_answers_of_the_audit_are_on_disk_and_can_be_undone(client, duplicates):
    _, before = client("/audit")
    number = before["pair"]["number"]
    status, after = client("/audit/answer", {"number": number, "answer": "same"})
    assert (status, after["answers"]["same"]) == (200, 1)
    assert Audit.open(duplicates).answers == {number: "same"}, "another process sees it at once"
    status, undone = client("/audit/undo", {})
    assert (status, undone["pair"]["number"]) == (200, number)
    assert Audit.open(duplicates).answers == {}


def test_killed_and_started_again_it_has_every_answer_that_it_confirmed(index, duplicates, tmp_path):
    folder = tmp_path / "duplicates"
    shutil.copytree(duplicates, folder)
    confirmed = {}
    for wait in (0.2, 0.5):
        ours, theirs = FORK.Pipe()
        server = FORK.Process(target=serve_until_killed, args=(index, folder, theirs), daemon=True)
        server.start()
        client = Client(ours.recv())
        before = client("/audit")[1]
        assert sum(before["answers"].values()) == len(Audit.open(folder).answers) >= len(confirmed)
        killer = threading.Timer(wait, server.kill)
        killer.start()
        try:
            for round_ in range(10_000):
                number, answer = round_ % before["total"], ("same", "unsure")[round_ % 2]
                assert client("/audit/answer", {"number": number, "answer": answer})[0] == 200
                confirmed[number] = answer
                last = (round_ + 1) % before["total"]  # this one may be on the disk, and nobody was told
        except (OSError, http.client.HTTPException):
            killer.join()
        server.join()
        saved = Audit.open(folder).answers
        assert {number: saved.get(number) for number in confirmed if number != last} == {
            number: answer for number, answer in confirmed.items() if number != last
        }
    assert confirmed


def serve_until_killed(index, folder, pipe):
    with running(index, duplicates=folder) as client:
        pipe.send(client.port)
        threading.Event().wait()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/same", b"{"),
        ("/same", b"\xff\xfe"),
        ("/same", b"[" * 100_000),
        ("/same", b'{"text": NaN}'),
        ("/same", b'{"text": "\\ud800"}'),
        ("/same", b'{"text": ""}'),
        ("/same", b'{"text": " \\u0000 ", "top": 1e400}'),
        ("/same", b'{"text": "a", "top": 1000000}'),
        ("/search", b'{"text": "a", "where": "status == "}'),
        ("/search", b'{"text": "a", "where": "__import__(1)"}'),
        ("/search", b'{"text": "\\u001c"}'),
        ("/v1/embeddings", b'{"input": []}'),
        ("/v1/embeddings", b'{"input": [[1, 2, 3]]}'),
        ("/rerank", b'{"query": "a"}'),
        ("/compare", json.dumps({"text1": "a", "text2": "b" * 10_001}).encode()),
        ("/audit/answer", b'{"number": 99999, "answer": "same"}'),
        ("/audit/answer", b'{"number": 0, "answer": "perhaps"}'),
        ("/nowhere", b"{}"),
        ("/health", b"{}"),
        ("/same", b'{"text": "\\ud800\xff"}'),
    ],
)
def test_a_malformed_request_is_refused_with_a_reason(client, path, body):
    status, answer, _ = client.raw("POST", path, body, {"Content-Type": "application/json"})
    assert 400 <= status < 500
    assert json.loads(answer)["error"]


def test_random_bytes_never_break_it(client):
    chance = random.Random(1)
    for _ in range(150):
        body = bytearray(json.dumps({"text": "the old farmer", "top": 3, "where": "x == 1"}).encode())
        for _ in range(chance.randint(1, 6)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        status, _, _ = client.raw(
            "POST",
            chance.choice(["/same", "/search", "/compare", "/rerank"]),
            bytes(body),
            {"Content-Type": "application/json"},
        )
        assert status < 500
    assert client("/health")[0] == 200


def test_a_body_that_is_too_large_and_another_kind_of_content_are_refused(client):
    json_header = {"Content-Type": "application/json"}
    assert client.raw("POST", "/same", b" " * (1 << 20) + b"{}", json_header)[0] == 413
    assert client.raw("POST", "/same", b"text=a", {"Content-Type": "application/x-www-form-urlencoded"})[0] == 415


def test_other_origins_and_other_names_of_this_machine_are_refused(client):
    assert client("/health", Host="evil.example")[0] == 421
    assert client("/same", {"text": "a"}, Origin="https://evil.example")[0] == 403
    status, _, headers = client.raw("GET", "/")
    assert status == 200
    assert "access-control-allow-origin" not in headers
    assert headers["content-security-policy"].startswith("default-src 'none'")


def test_with_a_token_nothing_but_the_empty_page_is_open(index):
    with running(index, token=TOKEN) as client:
        assert client("/health")[0] == 200
        assert client.raw("GET", "/")[0] == 200
        for path in ("/groups", "/audit", "/openapi.json"):
            assert client(path)[0] == 401
        assert client("/same", {"text": "a"}, Authorization="Bearer wrong")[0] == 401
        assert client("/same", {"text": "a"}, Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_full_queue_says_so_at_once(index):
    with running(index, capacity=0) as client:
        status, answer = client("/same", {"text": "a"})
        assert (status, answer["error"]) == (429, "too many requests wait; try again")
        assert client("/health")[0] == 200


@pytest.mark.parametrize(("host", "token"), [("0.0.0.0", None), ("192.168.1.5", None), ("0.0.0.0", "short")])
def test_other_machines_need_a_token(index, monkeypatch, host, token):
    monkeypatch.setenv("TRANS_ENCODER_TOKEN", token or "")
    result = CliRunner().invoke(app, ["serve", str(index.path), "--host", host])
    assert result.exit_code == 2
