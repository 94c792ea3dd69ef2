"""Audits: which pairs are asked, answers that survive a kill, and promises that hold."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from trans_encoder.answers.audit import ANSWERS, DEV, PROMISED, Audit
from trans_encoder.answers.promises import draw_pairs, keep_promise, lower_bound
from trans_encoder.cli import app
from trans_encoder.data.tasks import TestSet
from trans_encoder.errors import ConfigurationError, DataError

CANDIDATES, ACCEPTED = 400, 200


@pytest.fixture
def folder(tmp_path):
    """A duplicates folder with 400 candidates, half of them accepted."""
    write_candidates(tmp_path)
    return tmp_path


def write_candidates(folder, *, count=CANDIDATES):
    probabilities = np.linspace(0.99, 0.05, count)
    table = {
        "id1": [f"a{row}" for row in range(count)],
        "id2": [f"b{row}" for row in range(count)],
        "text1": [f"first text {row}" for row in range(count)],
        "text2": [f"second text {row}" for row in range(count)],
        "score": probabilities.astype(np.float32),
        "probability": probabilities,
        "same": np.arange(count) < ACCEPTED,
    }
    pq.write_table(pa.table(table), folder / "candidates.parquet")


def answer_all(audit, *, right):
    while (pair := audit.next) is not None:
        audit.answer(pair.number, "same" if right(int(pair.id1[1:])) else "not the same")


def run(*arguments, answers="", code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=answers)
    assert result.exit_code == code, result.output
    return result


def test_the_pairs_come_from_both_sides_of_the_decision_equally_many_of_each_band(folder):
    audit = Audit.open(folder)
    ranks = [int(pair.id1[1:]) for pair in audit.pairs]
    assert len(set(ranks)) == 100
    assert min(ranks) < 30
    assert max(ranks) > ACCEPTED
    assert max(ranks) < 1.5 * ACCEPTED
    assert np.bincount([pair.band for pair in audit.pairs]).tolist() == [10] * 10
    for start in range(0, 100, 10):
        assert {pair.band for pair in audit.pairs[start : start + 10]} == set(range(10)), "a round asks every band once"


def test_answers_are_there_after_a_kill_and_a_half_written_one_is_not(folder):
    audit = Audit.open(folder)
    for pair in audit.pairs[:3]:
        audit.answer(pair.number, "same")
    with (folder / ANSWERS).open("ab") as file:
        file.write(b'{"number": 3, "ans')
    again = Audit.open(folder)
    assert again.answers == dict.fromkeys([pair.number for pair in audit.pairs[:3]], "same")
    again.answer(again.next.number, "unsure")
    assert list(Audit.open(folder).answers.values()) == ["same", "same", "same", "unsure"]


def test_an_answer_can_be_undone_and_is_asked_again(folder):
    audit = Audit.open(folder)
    assert audit.undo() is None
    first, second = audit.pairs[:2]
    audit.answer(first.number, "same")
    audit.answer(second.number, "not the same")
    assert audit.undo() == second
    assert audit.next == second
    assert Audit.open(folder).answers == {first.number: "same"}


def test_sure_answers_are_a_dev_set(folder):
    audit = Audit.open(folder)
    for pair, answer in zip(audit.pairs, ("same", "unsure", "not the same"), strict=False):
        audit.answer(pair.number, answer)
    dev = TestSet.read(folder / DEV)
    assert dev.gold.tolist() == [1, 0]
    assert dev.pairs.sentence1.to_pylist() == [audit.pairs[0].text1, audit.pairs[2].text1]


def test_a_promise_reaches_as_far_as_the_answers_do(folder):
    audit = Audit.open(folder)
    answer_all(audit, right=lambda rank: rank < 180)
    promise = audit.promise(0.9, confidence=0.9)
    assert 4 <= promise.bands <= 7
    assert promise.bound >= 0.9
    kept = audit.save_promised(promise)
    lines = [json.loads(line) for line in (folder / PROMISED).read_text().splitlines()]
    assert len(lines) == kept
    assert lines[0] == {"id1": "a0", "id2": "b0", "score": pytest.approx(0.99), "probability": pytest.approx(0.99)}
    wrong = {pair.id1 for pair in audit.pairs if audit.answers[pair.number] == "not the same"}
    assert not wrong & {line["id1"] for line in lines}
    assert audit.promise(0.99).bands == 0


def test_unsure_counts_as_wrong_and_rounds_that_are_not_full_do_not_count(folder):
    audit = Audit.open(folder)
    for pair in audit.pairs[:45]:
        audit.answer(pair.number, "same")
    promise = audit.promise(0.9)
    assert (promise.right, promise.checked) == (40, 40)
    for pair in audit.pairs[:40]:
        audit.answer(pair.number, "unsure")
    assert audit.promise(0.9).bands == 0


def test_other_candidates_are_never_mixed_with_old_answers(folder):
    Audit.open(folder)
    write_candidates(folder, count=300)
    with pytest.raises(DataError, match="has changed since its audit began"):
        Audit.open(folder)


def test_wrong_folders_numbers_and_answers_are_refused(folder, tmp_path):
    with pytest.raises(DataError, match="does not hold what `duplicates` writes"):
        Audit.open(tmp_path / "nothing")
    audit = Audit.open(folder)
    with pytest.raises(ConfigurationError, match="no pair 100"):
        audit.answer(100, "same")
    with pytest.raises(ConfigurationError, match="expected one of same, not the same, unsure"):
        audit.answer(0, "perhaps")
    with pytest.raises(ConfigurationError, match="precision must lie between 0 and 1"):
        audit.promise(1.0)
    (folder / ANSWERS).write_text('{"number": 1000, "answer": "same"}\n')
    with pytest.raises(DataError, match=r"audit\.jsonl, line 1"):
        Audit.open(folder)


def test_a_damaged_plan_is_refused_briefly(folder):
    Audit.open(folder, pairs=4)
    plan = json.loads((folder / "audit.json").read_text())
    plan["pairs"][0]["x" * 30_000] = 1
    (folder / "audit.json").write_text(json.dumps(plan))
    with pytest.raises(DataError, match=r"audit\.json cannot be read") as caught:
        Audit.open(folder)
    assert len(str(caught.value)) < 1000


def test_the_bound_is_the_exact_one():
    # With nothing wrong the bound has a closed form; the other is from tables of Clopper and Pearson's interval.
    assert lower_bound(20, 20, confidence=0.95) == pytest.approx(0.05 ** (1 / 20))
    assert lower_bound(8, 10, confidence=0.975) == pytest.approx(0.4439, abs=1e-4)
    assert lower_bound(0, 10, confidence=0.95) == 0


@pytest.mark.parametrize("share", [0.895, 0.85])
def test_a_promise_is_broken_no_more_often_than_stated(share):
    broken = 0
    for seed in range(200):
        truth = np.random.default_rng(seed).random(2000) < share
        draw = draw_pairs(2000, 100, seed=seed)
        right = np.zeros(draw.bands, dtype=int)
        for band, rank in draw.order:
            right[band] += truth[rank]
        promise = keep_promise(right.tolist(), 10, precision=0.9, confidence=0.9)
        broken += bool(promise.bands) and truth[: promise.bands * draw.band_size].mean() < 0.9
    assert broken <= 20


def test_the_command_asks_undoes_and_stops(folder):
    told = run("audit", folder, "--json", answers="s\nn\nz\nx\nu\nq\n")
    result = json.loads(told.stdout)
    assert result["answers"] == {"same": 1, "not the same": 0, "unsure": 1}
    assert result["promise"]["bands"] == 0
    assert "'x' is not an answer" in told.stderr
    shown = run("audit", folder, "--status")
    assert "2 of 100 pairs answered" in shown.stdout
    run("audit", folder, "--precision", "2", code=2)


def test_the_command_promises_what_the_answers_support(folder):
    told = run("audit", folder, answers="s\n" * 100)
    assert "of the 300 pairs" in told.stdout
    assert "100 of 100 checked pairs were right" in told.stdout
