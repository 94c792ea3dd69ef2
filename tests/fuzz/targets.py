"""What is fuzzed: each target makes one malformed input, has it read, and says what was surprising, if anything."""

import gzip
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

from fuzz import answers, models
from fuzz.counting import count_nonblank
from fuzz.mutation import TOKENS, mutate
from fuzz.reading import TABLES, Surprise, Target, quietly, unexplained
from fuzz.requests import requests
from fuzz.sound import arrow_bytes, markdown, plain_text, table
from trans_encoder.config import JobConfig, RunConfig, load_config, parse_overrides
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.text import Text
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.errors import DataError, TransEncoderError

_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def line_table(ending: str, *, packed: bool = False) -> Target:
    """Fuzz pairs in a format of lines."""
    make, count = TABLES[ending]

    def target(random: Random, folder: Path) -> Surprise:
        content = mutate(random, make(random))
        path = folder / f"p.{ending}{'.gz' * packed}"
        path.write_bytes(gzip.compress(content, 1, mtime=0) if packed else content)
        columns = random.choice((None, None, None, ("sentence1", "sentence2"), ("1", "2"), ("1", "2", "3")))
        headed = ending == "jsonl" or columns is None or columns[0] != "1"
        return _read(path, columns, expected=count(content) + (not headed))

    return target


def _read(path: Path, columns: tuple[str, ...] | None, *, expected: int) -> Surprise:
    """Read twice, with bad lines left out and with none allowed; both must tell the same story."""
    try:
        pairs = PairSet.read(path, columns=columns, skip_bad=True)
    except DataError as error:
        return unexplained(error, path) or _accepted(path, columns)
    report = pairs.report
    assert report is not None
    if report.read != len(pairs) or report.read + report.bad != expected:
        return f"{report.read} read, {report.bad} bad, {len(pairs)} returned; the file has {expected}"
    try:
        strict = PairSet.read(path, columns=columns)
    except DataError as error:
        return unexplained(error, path) if report.bad else f"refused without a bad line: {error}"
    if report.bad:
        return f"{report.bad} bad lines were accepted"
    return None if strict.hash == pairs.hash else "read differently when nothing may be left out"


def _accepted(path: Path, columns: tuple[str, ...] | None) -> Surprise:
    try:
        PairSet.read(path, columns=columns)
    except DataError:
        return None
    return "read when nothing may be left out, refused otherwise"


def damaged_gzip(random: Random, folder: Path) -> Surprise:
    """Damage the packed bytes; whatever unpacks whole must be read whole."""
    ending = random.choice(tuple(TABLES))
    make, count = TABLES[ending]
    path = folder / f"p.{ending}.gz"
    path.write_bytes(mutate(random, gzip.compress(make(random), mtime=0)))
    try:
        expected = count(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error):
        expected = -1  # so that reading it is a surprise
    return _read(path, None, expected=expected)


def bomb(random: Random, folder: Path) -> Surprise:
    """Pack a lot of nothing: refused, or read, in bounded time."""
    path = folder / "p.tsv.gz"
    size = random.choice((1 << 20, 1 << 24, 1 << 29))
    with gzip.open(path, "wb", 1) as file:
        file.write(b"sentence1\tsentence2\n")
        filling = random.choice((b"\0", b"a", b"a" * 1000 + b"\n", b"a" * 500 + b"\t" + b"b" * 500 + b"\n"))
        for _ in range(size >> 20):
            file.write(filling * ((1 << 20) // len(filling)))
    return quietly(lambda: PairSet.read(path, skip_bad=True))


def arrow_table(ending: str) -> Target:
    """Fuzz the values of a Parquet or Arrow file: every row is read or named."""

    def target(random: Random, folder: Path) -> Surprise:
        content, path = table(random), folder / f"p.{ending}"
        path.write_bytes(arrow_bytes(random, content, ending=ending))
        return _read(path, None, expected=len(content))

    return target


def damaged_arrow(ending: str) -> Target:
    """Fuzz the bytes of a Parquet or Arrow file, and of what `save` writes: read or refused."""

    def target(random: Random, folder: Path) -> Surprise:
        path = folder / f"p.{ending}"
        path.write_bytes(mutate(random, arrow_bytes(random, table(random), ending=ending)))
        read = random.choice((PairSet.read, PairSet.open, Text.read, Text.open, PseudoLabels.open))
        return quietly(lambda: read(path), name=path)

    return target


def raw_text(random: Random, folder: Path) -> Surprise:
    """Fuzz plain text: every line that is not blank is read or named."""
    content, line = mutate(random, plain_text(random)), random.choice(("sentence", "document", "wrapped"))
    packed = random.random() < 0.2
    path = folder / f"t.txt{'.gz' * packed}"
    path.write_bytes(gzip.compress(content, 1, mtime=0) if packed else content)
    try:
        found = Text.read(path, line=line, duplicates=random.choice(("keep", "exact", "near")), skip_bad=True)
    except DataError as error:
        return unexplained(error, path)
    report = found.report
    assert report is not None
    expected = count_nonblank(content)
    if report.lines.read + report.lines.bad != expected or report.kept != len(found):
        return (
            f"{report.lines.read} read, {report.bad} bad, {len(found)} of {report.kept} kept; the file has {expected}"
        )
    return None


def text_table(random: Random, folder: Path) -> Surprise:
    """Fuzz text in tables and Markdown: read or refused, kept sentences counted."""
    ending = random.choice(("md", "jsonl", "tsv", "csv"))
    make = {"md": markdown} | {name: make for name, (make, _) in TABLES.items()}
    path = folder / f"t.{ending}"
    path.write_bytes(mutate(random, make[ending](random)))
    column = random.choice((None, "sentence1", "2"))
    return quietly(lambda: Text.read(path, column=column, skip_bad=random.random() < 0.8), name=path)


_SETTINGS = """seed = 7|cycles = 2|strategy = "refresh"|both_orders = true|anchor = 0.5|device = "cpu"
precision = "fp32"|trackers = ["wandb"]|preset = "paper"|patience = 0|[inputs]|pairs = "pairs.tsv"|out = "run"
max_pairs = 5|[cross]|[bi]|epochs = 3|learning_rate = 1e-4|batch_size = 16|loss = "mse"|max_tokens = 32|[[members]]
bi = "model"|name = "m"|pooling = "mean"|trust_remote_code = true""".replace("\n", "|").split("|")
_VALUES = (
    *("1", "-1", "0", "nan", "inf", "1e400", "true", '"x"', "[]", "{}", "{a=1}", "[[]]", "1979-05-27", "''", "0x10"),
    *('"."', '".."', '"<b>"', '"CON"', '"\\u0000"', '"a\\\\b"'),
    *("[" * 500, "9" * 40, "9" * 5000, '"' + "../" * 5 + '"', '"' + "x" * 500 + '"', '"~no-such-user/x"', '"a b=c d"'),
)


def toml(random: Random, folder: Path) -> Surprise:
    """Fuzz a configuration file."""
    lines = ['members = ["a/b", "model=plm"]', *random.choices(_SETTINGS, k=random.randint(0, 6))]
    for place in range(len(lines)):
        if random.random() < 0.3 and "=" in lines[place]:
            lines[place] = lines[place].split("=")[0] + "= " + random.choice(_VALUES)
    content = "\n".join(lines).encode()
    path = folder / "run.toml"
    path.write_bytes(mutate(random, content) if random.random() < 0.7 else content)
    return _sound_job(lambda: load_config(path))


def overrides(random: Random, _folder: Path) -> Surprise:
    """Fuzz `--set key=value`, as the command line takes it."""
    keys = ("seed", "cycles", "members", "cross.epochs", "bi.loss", "bi", "inputs.out", "anchor", "device", "a.b.c", "")

    def assignment() -> str:
        sound = f"{random.choice(keys)}={random.choice(_VALUES)}"
        noise = mutate(random, sound.encode()) if random.random() < 0.7 else sound.encode()
        # Arguments reach a program without NULs, and bytes that are not UTF-8 as half surrogates.
        return noise.replace(b"\0", b"").decode(errors="surrogateescape")

    given = [assignment() for _ in range(random.randint(1, 4))]
    return _sound_job(lambda: load_config(None, {"members": ["model"], **parse_overrides(given)}))


def _sound_job(load: Callable[[], JobConfig]) -> Surprise:
    """Refuse with an error of ours, or give a job that survives its own JSON and whose names are safe as folders."""
    try:
        job = load()
    except TransEncoderError as error:
        return None if len(str(error)) < 20_000 else f"a message of {len(str(error)):,} characters"
    if RunConfig.model_validate_json(job.run.model_dump_json()) != job.run:
        return "the configuration is not the same after a round trip through JSON"
    names = [str(member.name) for member in job.run.members]
    unsafe = [name for name in names if not _MEMBER.fullmatch(name)]
    return f"members called {unsafe}" if unsafe or len(set(map(str.lower, names))) < len(names) else None


def nothing_but_noise(random: Random, folder: Path) -> Surprise:
    """Fuzz every ending with bytes that never were a file of its kind."""
    ending = random.choice(("jsonl", "tsv", "csv", "parquet", "arrow", "txt", "md", "toml", "tsv.gz", "xlsx", ""))
    path = folder / f"n.{ending}"
    noise = (random.randbytes(random.randrange(200)), b"".join(random.choices(TOKENS, k=random.randrange(12))))
    path.write_bytes(random.choice((*noise, bytes([random.randrange(256)]) * random.randrange(300))))
    if ending == "toml":
        return _sound_job(lambda: load_config(path))
    read = random.choice((PairSet.read, Text.read))
    return quietly(lambda: read(path), name=path)


TARGETS: dict[str, tuple[Target, int]] = {
    "pairs, JSONL": (line_table("jsonl"), 22),
    "pairs, TSV": (line_table("tsv"), 20),
    "pairs, CSV": (line_table("csv"), 22),
    "pairs, packed JSONL": (line_table("jsonl", packed=True), 3),
    "pairs, packed CSV": (line_table("csv", packed=True), 3),
    "pairs, Parquet values": (arrow_table("parquet"), 10),
    "pairs, Arrow values": (arrow_table("arrow"), 5),
    "Parquet bytes": (damaged_arrow("parquet"), 15),
    "Arrow bytes": (damaged_arrow("arrow"), 12),
    "gzip bytes": (damaged_gzip, 8),
    "text": (raw_text, 20),
    "text in tables, Markdown": (text_table, 12),
    "TOML": (toml, 22),
    "--set": (overrides, 22),
    "noise": (nothing_but_noise, 10),
    "corpus": (answers.corpus, 15),
    "labels to learn": (answers.labels, 10),
    "--where": (answers.condition, 15),
    "index folder": (answers.damaged_index, 6),
    "duplicates folder": (answers.damaged_duplicates, 6),
    "audit answers": (answers.audit_answers, 6),
    "growing index": (answers.grown_index, 2),
    "requests": (requests, 15),
    "bi-encoder folder": (models.damaged_bi, 2),
    "cross-encoder folder": (models.damaged_cross, 2),
    "ensemble folder": (models.damaged_ensemble, 2),
    "gzip bombs": (bomb, 0),
}
"""Each target and its share of the cases; bombs are few, because each takes a second."""
