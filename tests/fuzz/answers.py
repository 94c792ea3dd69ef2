"""Malformed inputs of the commands that answer: corpora, filters, damaged folders of indexes and duplicates."""

import atexit
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa

from fuzz.mutation import damage, mutate
from fuzz.reading import TABLES, Surprise, Target, quietly, unexplained
from fuzz.sound import plain_text
from trans_encoder.answers.audit import ANSWERS, Audit
from trans_encoder.answers.duplicates import duplicates_of
from trans_encoder.answers.filters import matching
from trans_encoder.answers.found import Duplicates
from trans_encoder.answers.index import Index, build_index
from trans_encoder.answers.retrieval import Embedder
from trans_encoder.data import Corpus
from trans_encoder.encoders.prompts import Prompt
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.pipelines.learn import read_labels

_TEXTS = ["the flight was cancelled", "the flight was not cancelled", "flight got cancelled", "a wooden boat", "a boat"]


class Letters:
    """A bi-encoder that counts letters: no weights, so that each case takes milliseconds."""

    kind = "bi"
    name = "letters"
    max_tokens = 512
    prompts = (Prompt(), Prompt())

    def fingerprint(self) -> dict[str, str]:
        """There is but one."""
        return {"letters": "1"}

    def encode(self, texts: list[str], *, side: int = 1) -> np.ndarray:
        """Return the counts of 26 letters, normalised."""
        counts = np.array([[text.lower().count(chr(97 + place)) + 0.1 for place in range(26)] for text in texts])
        return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)


def corpus(random: Random, folder: Path) -> Surprise:
    """Fuzz a file of rows with ids and columns: every row is read or named."""
    ending = random.choice((*TABLES, "txt"))
    content = plain_text(random) if ending == "txt" else TABLES[ending][0](random)
    path = folder / f"rows.{ending}"
    path.write_bytes(mutate(random, content))
    id_column = random.choice((None, None, "score", "nothing")) if ending != "txt" else None
    column = random.choice((None, "sentence1", "nothing")) if ending != "txt" else None
    try:
        rows = Corpus.read(path, column=column, id=id_column, skip_bad=random.random() < 0.7)
    except (DataError, ConfigurationError) as error:
        return unexplained(error, path)
    texts, ids = rows.texts.to_pylist(), rows.ids.to_pylist()
    if any(not text or not text.strip() for text in texts):
        return "an empty text was read as a row"
    return None if len(set(ids)) == len(ids) else "two rows have one id"


def labels(random: Random, folder: Path) -> Surprise:
    """Fuzz what `learn` reads: pairs with scores of some range."""
    ending = random.choice(tuple(TABLES))
    path = folder / f"labels.{ending}"
    path.write_bytes(mutate(random, TABLES[ending][0](random)))
    score_range = random.choice((None, (0.0, 5.0), (-1.0, 1.0)))
    try:
        read = read_labels(path, score_range=score_range, skip_bad=random.random() < 0.7)
    except DataError as error:
        return unexplained(error, path)
    scores = read.scores
    if scores is None or not np.isfinite(scores).all():
        return "labels that are not numbers were read"
    low = -1.0 if score_range is None else 0.0
    return None if len(scores) == 0 or (scores.min() >= low - 1e-6 and scores.max() <= 1 + 1e-6) else "beyond the range"


_CONDITIONS = (
    *('status == "open"', "year >= 2020", 'language in ["en", "de"]', "not (priority < 3)", 'col("a b") != 1'),
    *("year < 1e400", "year == 99999999999999999999999", "status in []", "year in [1, 'x']", "status > 3", "a and b"),
    *("(" * 60 + "year == 1" + ")" * 60, "__import__('os')", "year == (lambda: 1)()", "not not not year > 1"),
)
_ROWS = pa.table(
    {
        "status": ["open", None, "closed"],
        "year": [2019, 2021, None],
        "language": pa.array(["en", "fr", "de"]).dictionary_encode(),
        "priority": ["1", "x", "3"],
        "a b": [1.5, None, float("nan")],
    }
)


def condition(random: Random, _folder: Path) -> Surprise:
    """Fuzz `--where`: a flag for each row, or a refusal that shows how conditions are written."""
    text = mutate(random, random.choice(_CONDITIONS).encode()).decode(errors="replace")
    try:
        flags = matching(_ROWS, text)
    except ConfigurationError as error:
        return None if "filter" in str(error) and len(str(error)) < 20_000 else f"unexplained: {error}"
    return None if flags.shape == (len(_ROWS),) and flags.dtype == bool else f"flags {flags}"


@cache
def sound_answers() -> Path:
    """Make an index and the folder of its duplicates with an audit begun, once for all cases."""
    root = Path(mkdtemp(prefix="fuzz-answers-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    rows = Corpus.from_texts([f"{text} {number}" for number in range(4) for text in _TEXTS])
    index = build_index(rows, root / "index", models=Embedder((Letters(),)))
    _ = index.probability  # kept in the folder
    duplicates_of(index.embedded, index.embedder).save(root / "duplicates")
    audit = Audit.open(root / "duplicates", pairs=4)
    for pair in audit.pairs[:2]:
        audit.answer(pair.number, "same")
    return root


def _copied(name: str, folder: Path) -> Path:
    """Copy a sound folder; all cases of a campaign share one place."""
    shutil.rmtree(folder / name, ignore_errors=True)
    return Path(shutil.copytree(sound_answers() / name, folder / name))


def _damaged(name: str, read: Callable[[Path], object]) -> Target:
    """Damage one file of a folder that was sound; it is read or refused by name."""

    def target(random: Random, folder: Path) -> Surprise:
        place = _copied(name, folder)
        file = random.choice(sorted(path for path in place.iterdir() if path.name != ".lock"))
        damage(random, file)
        return quietly(lambda: read(place), name=place)

    return target


def _audited(place: Path) -> None:
    audit = Audit.open(place)
    if (pair := audit.next) is not None:
        audit.answer(pair.number, "unsure")
    audit.undo()
    audit.promise(0.9)


def audit_answers(random: Random, folder: Path) -> Surprise:
    """Damage the answers of people; a half-written line is dropped, any other is named."""
    place = _copied("duplicates", folder)
    path = place / ANSWERS
    path.write_bytes(mutate(random, path.read_bytes()))
    return quietly(lambda: _audited(place), name=path)


def _searched(place: Path) -> None:
    """Use the whole index: its rows, vectors, words and probabilities."""
    index = Index.open(place)
    index._embedder = Embedder((Letters(),))
    index.search(_TEXTS[0], top=2)
    build_index(Corpus.from_texts(["a new one"], ids=["new"]), place, models=index._embedder)


damaged_index = _damaged("index", _searched)
damaged_duplicates = _damaged("duplicates", lambda place: (Duplicates.open(place), _audited(place)))


def grown_index(random: Random, folder: Path) -> Surprise:
    """Make and grow an index with columns of odd values: rows are kept or refused, and the index stays whole."""
    place, accepted = folder / "grown", 0
    shutil.rmtree(place, ignore_errors=True)
    for number in range(2):
        try:
            rows = Corpus.from_texts(_TEXTS[number:], columns={"other": _values(random, len(_TEXTS) - number)})
            built = build_index(rows, place, models=Embedder((Letters(),)), replace=random.random() < 0.5)
        except (DataError, ConfigurationError):
            continue
        accepted = len(built)
    found = len(Index.open(place).embedded.rows.to_pylist()) if (place / "index.json").exists() else 0
    return None if found == accepted else f"{found} rows, {accepted} were accepted"


def _values(random: Random, count: int) -> list[object]:
    kind = random.choice(
        ((None, "a", "", "\0", "x" * 300), (1, None, -(2**63)), (1.5, float("inf"), None), (True, None))
    )
    return [random.choice(kind) for _ in range(count)]
