"""Shared fixtures: tiny encoders of each family with tokenizers of their own, and pairs with a signal to learn."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import gc
import logging
import string
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from browsing import opened_browser
from trans_encoder.data.pairs import PairSet

torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
logging.getLogger("sentence_transformers").setLevel(logging.ERROR)

SLOTS = (
    ("old", "young", "tall", "clever", "tired", "happy", "quiet", "brave"),
    ("farmer", "teacher", "doctor", "painter", "sailor", "singer", "baker", "pilot"),
    ("carries", "sells", "finds", "washes", "repairs", "paints", "loses", "buys"),
    ("red", "green", "heavy", "broken", "wooden", "golden", "tiny", "cheap"),
    ("boat", "guitar", "basket", "ladder", "clock", "kettle", "bicycle", "lamp"),
    ("beside the river", "in the market", "at the station", "near the school", "on the hill", "behind the barn"),
)
"""The words that sentences are made of; two sentences are the more alike the more of them they share."""

Words = tuple[str, ...]


def words(random: Random) -> Words:
    return tuple(random.choice(slot) for slot in SLOTS)


def sentence(chosen: Words) -> str:
    return "the {} {} {} the {} {} {}".format(*chosen)


def graded(count: int, *, seed: int) -> PairSet:
    """Make pairs of every degree of likeness; the score is the share of words in common."""
    random = Random(seed)
    left, right, scores = [], [], []
    for number in range(count):
        first = words(random)
        kept = number % (len(SLOTS) + 1)
        places = set(random.sample(range(len(SLOTS)), kept))
        other = words(random)
        second = tuple(first[i] if i in places else other[i] for i in range(len(SLOTS)))
        left.append(sentence(first))
        right.append(sentence(second))
        scores.append(sum(a == b for a, b in zip(first, second, strict=True)) / len(SLOTS))
    return PairSet.from_lists(left, right, scores=scores)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Chromium."""
    with opened_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Two hundred sentences."""
    random = Random(0)
    return [sentence(words(random)) for _ in range(200)]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file of two hundred sentences, one a line."""
    random = Random(7)
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("".join(sentence(words(random)) + "\n" for _ in range(200)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def pairs() -> PairSet:
    """Ninety-six unlabelled pairs."""
    labelled = graded(96, seed=1)
    return PairSet.from_lists(labelled.sentence1.to_pylist(), labelled.sentence2.to_pylist())


@pytest.fixture(scope="session")
def dev() -> PairSet:
    """Forty-eight graded pairs."""
    return graded(48, seed=2)


@pytest.fixture(scope="session")
def uneven(dev) -> PairSet:
    """The graded pairs, each text cut to another number of words."""
    sides = (dev.sentence1.to_pylist(), dev.sentence2.to_pylist())
    cut = [
        [" ".join(text.split()[: 1 + step * place % 10]) for place, text in enumerate(side)]
        for side, step in zip(sides, (3, 7), strict=True)
    ]
    return PairSet.from_lists(*cut)


def wordpiece(texts: list[str]) -> PreTrainedTokenizerFast:
    """Make a lower-casing WordPiece tokenizer in BERT's layout: every word and, for unknown ones, every letter."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    known = sorted({word for text in texts for word in text.split()} - set(letters))
    tokens = [*special, *letters, *(f"##{letter}" for letter in letters), *known]
    # Not trained: the trainer breaks ties at random, and tests want the same tokenizer in every process.
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    tokenizer.decoder = decoders.WordPiece()
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, model_input_names=inputs, **names)


def byte_level_bpe(texts: list[str]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer in RoBERTa's layout."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask"],
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


def shape(family: str, *, width: int, tokenizer: PreTrainedTokenizerFast) -> Any:
    """Return the configuration of a two-layer encoder of a family."""
    common: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 2 * width,
        "max_position_embeddings": 80,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "cls_token_id": tokenizer.cls_token_id,
        "sep_token_id": tokenizer.sep_token_id,
    }
    match family:
        case "bert":
            return transformers.BertConfig(**common)
        case "roberta":
            return transformers.RobertaConfig(type_vocab_size=1, **common)
        case "mpnet":
            return transformers.MPNetConfig(**common)
        case "electra":
            return transformers.ElectraConfig(embedding_size=width, **common)
        case "modernbert":
            return transformers.ModernBertConfig(global_attn_every_n_layers=2, local_attention=16, **common)
        case "distilbert":
            names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
            names["intermediate_size"] = "hidden_dim"
            return transformers.DistilBertConfig(**{names.get(name, name): value for name, value in common.items()})
    raise ValueError(family)


def save_model(folder: Path, config: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    """Save a new model of this shape, its weights drawn from its width."""
    with torch.random.fork_rng():
        torch.manual_seed(config.hidden_size)
        model = transformers.AutoModel.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


FAMILIES = ("bert", "roberta", "mpnet", "distilbert", "electra", "modernbert")

TinyModel = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, sentences: list[str]) -> TinyModel:
    """Return a function that builds a tiny PLM of a family, once: `tiny_model("bert", width=32)`."""
    import trans_encoder.encoders.training  # noqa: F401

    # The trainer collects garbage after every training; let it pass over what the imports have brought.
    gc.freeze()
    root = tmp_path_factory.mktemp("models")
    trained = {True: wordpiece(sentences), False: byte_level_bpe(sentences)}

    def build(family: str, *, width: int = 32) -> Path:
        folder = root / f"{family}-{width}"
        if not folder.exists():
            tokenizer = trained[family in ("bert", "distilbert", "electra")]
            save_model(folder, shape(family, width=width, tokenizer=tokenizer), tokenizer)
        return folder

    return build


@pytest.fixture(scope="session")
def bert(tiny_model: TinyModel) -> Path:
    """A tiny BERT, 32 wide."""
    return tiny_model("bert", width=32)


@pytest.fixture(scope="session")
def roberta(tiny_model: TinyModel) -> Path:
    """A tiny RoBERTa, 48 wide."""
    return tiny_model("roberta", width=48)


TINY_RUN: dict[str, Any] = {
    "device": "cpu",
    "cycles": 2,
    "patience": 0,
    "scale": "none",
    "lexical": False,
    "directions": 0,
    "both_orders_labels": False,
    "cross": {
        "batch_size": 16,
        "learning_rate": 1e-3,
        "dropout": 0.1,
        "max_tokens": 48,
        "dev_steps": 5,
        "checkpoint_steps": 5,
    },
    "bi": {
        "batch_size": 16,
        "learning_rate": 1e-3,
        "dropout": 0.1,
        "epochs": 2,
        "max_tokens": 32,
        "dev_steps": 4,
        "checkpoint_steps": 5,
    },
}
"""Overrides that make a run of tiny models take seconds, with checkpoints inside every training."""


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a run that must be the same whenever the run is the same: all but times and the lock."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in ("manifest.json", ".lock"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory, bert: Path) -> Path:
    """A model that embeds sentences, made by somebody else: for all that is known, it was trained on labels."""
    from trans_encoder.encoders import BiEncoder

    folder = tmp_path_factory.mktemp("start") / "start"
    BiEncoder.load(bert).save(folder)
    return folder


@pytest.fixture(scope="session")
def mutual(tmp_path_factory: pytest.TempPathFactory, bert: Path, roberta: Path, pairs: PairSet, dev: PairSet) -> Path:
    """A finished run folder: BERT and RoBERTa of different widths teach each other in two cycles. Do not change it."""
    from trans_encoder.pipelines.distil import distil

    return distil(pairs, [str(bert), str(roberta)], dev=dev, out=tmp_path_factory.mktemp("mutual"), **TINY_RUN).folder


@pytest.fixture(params=["plain", "fast"])
def either_runner(request, monkeypatch):
    """Let encoders run the plain and the fast way, one after the other."""
    monkeypatch.setenv("TRANS_ENCODER_FAST", str(int(request.param == "fast")))


@pytest.fixture
def cores():
    """Give torch two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def no_pass_is_too_small(monkeypatch):
    """Use oneDNN for any number of rows, on CPUs of any make."""
    from trans_encoder.fast import matmul

    monkeypatch.setattr(matmul, "_FEWEST_ROWS", 1)
    if torch.backends.mkldnn.is_available():
        monkeypatch.setattr(matmul, "_capability", lambda: "AVX2")


def make_static(folder, sentences, *, seed):
    """Save a static encoder of random word vectors: texts are the nearer the more words they share."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = wordpiece(sentences).backend_tokenizer
    weights = torch.randn(tokenizer.get_vocab_size(), 32, generator=torch.Generator().manual_seed(seed))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu").save(
        str(folder), create_model_card=False
    )
    return folder


@pytest.fixture(scope="session")
def static(tmp_path_factory, sentences):
    """A static encoder's folder."""
    return make_static(tmp_path_factory.mktemp("static") / "model", sentences, seed=0)


@pytest.fixture(scope="session")
def other_static(tmp_path_factory, sentences):
    """Another static encoder's folder, of the same shape."""
    return make_static(tmp_path_factory.mktemp("static") / "other", sentences, seed=1)


@pytest.fixture(scope="session")
def embedder(static):
    """The first static model, loaded to embed with."""
    from trans_encoder.answers.retrieval.embedder import load_embedder

    return load_embedder([str(static)])


@pytest.fixture
def tickets(tmp_path, sentences):
    """A CSV file of forty rows: each of ten sentences, then the same with one word changed, then others."""
    lines = ["ticket,status,body"]
    distinct = list(dict.fromkeys(sentences))[:30]
    for number, text in enumerate(distinct):
        lines.append(f"T{number},{'open' if number % 2 else 'closed'},{text}")
    for number, text in enumerate(distinct[:10]):
        lines.append(f"D{number},open,{text} near")
    path = tmp_path / "tickets.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class WordOverlap:
    """A teacher that knows the degree of likeness of every pair: the share of words in common, and noise."""

    kind = "bi"

    def __init__(self, name="exact", *, noise=0.0, sign=1):
        self.name, self.noise, self.sign = name, noise, sign

    def score(self, pairs):
        shares = [
            len(set(left.split()) & set(right.split())) / max(len(set(left.split()) | set(right.split())), 1)
            for left, right, _ in pairs.rows()
        ]
        random = np.random.default_rng(len(self.name))
        exact = self.sign * np.array(shares) + self.noise * random.normal(size=len(pairs))
        return np.clip(exact, -1, 1).astype(np.float32)


@pytest.fixture(scope="session")
def held_out() -> PairSet:
    """Sixty pairs to judge by."""
    return graded(60, seed=9).without_scores()
