"""A short campaign of malformed inputs, and proof that a campaign notices what it looks for."""

import os
import signal
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuzz import campaign
from fuzz.counting import count_csv, count_nonblank, count_tsv
from fuzz.targets import TARGETS
from trans_encoder.config import load_config, parse_overrides
from trans_encoder.data.pairs import PairSet
from trans_encoder.errors import ConfigurationError, DataError


def test_malformed_inputs_are_read_or_refused_and_no_line_is_lost():
    outcome = campaign.run(range(800), seed=42)
    assert outcome.surprises == []
    assert outcome.cases.total() == 800
    assert set(outcome.cases) == set(TARGETS) - {"gzip bombs"}


def test_a_gzip_bomb_is_survived():
    outcome = campaign.run([3999], seed=42)
    assert outcome.cases == {"gzip bombs": 1}
    assert outcome.surprises == []


@pytest.mark.parametrize(
    ("bad", "noticed"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "the process died: -9"),
        (lambda: time.sleep(60), "hangs"),
        (lambda: "two lines lost", "two lines lost"),
    ],
)
def test_a_campaign_notices_and_goes_on(monkeypatch, bad, noticed):
    def target(random, folder):
        return bad() if random.random() < 0.5 else None

    monkeypatch.setattr(campaign, "TARGETS", {"bad": (target, 1)})
    outcome = campaign.run(range(4), seed=1, seconds=0.5)
    assert outcome.cases == {"bad": 4}
    assert 0 < len(outcome.surprises) < 4
    assert all(noticed in surprise for surprise in outcome.surprises)


def test_the_counts_that_readers_are_held_to():
    assert count_nonblank(b"\xef\xbb\xbfa\n \r\n\nb") == 2
    assert count_tsv(b"a\tb\r\n\n \nc\r\n") == 3
    assert count_csv(b'a,b\n"x\ny",z\n\n""\n"never\nends\n"x"y,1\n') == 5
    assert count_csv(b'a\n"x\n\xff\ny"\n') == 4


@pytest.mark.parametrize(
    "assignment",
    [
        f"seed={'9' * 5000}",
        'members=["~no-such-user/model"]',
        f'members=["{"x" * 5000}=plm"]',
        r'members=["a\u0000b"]',
        "members=\udcff",
        f"device={'x' * 1_000_000}",
    ],
)
def test_settings_that_once_surprised_are_refused_briefly(assignment):
    with pytest.raises(ConfigurationError, match="1 problem in the configuration") as caught:
        load_config(None, {"members": ["model"], **parse_overrides([assignment])})
    assert len(str(caught.value)) < 1000


def test_a_column_that_once_surprised_is_refused_with_its_file(tmp_path):
    path = tmp_path / "pairs.parquet"
    pq.write_table(pa.table({"a": ["x"], "b": [1]}), path)
    with pytest.raises(DataError, match=f"^{path}: column 'b' holds int64, not text"):
        PairSet.read(path)
