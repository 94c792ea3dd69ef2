"""Tokenise once: every distinct sentence becomes token ids in one flat array, and batches are cut from it."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trans_encoder.data import Distinct, PairSet
from trans_encoder.data.storage import spool_array
from trans_encoder.errors import ConfigurationError
from trans_encoder.progress import progress

Integers = NDArray[np.int64]

_SENTENCES_AT_ONCE = 2048
_REMEMBERED = 8
_REMEMBERED_BYTES = 2 * 2**30
_BLOCK_PAIRS = 1 << 20
_BLOCK_TOKENS = 1 << 20


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token ids of many sentences without special tokens: sentence i is `ids[starts[i]:starts[i + 1]]`."""

    ids: NDArray[np.int32]
    starts: Integers
    whole: Integers
    """Number of tokens of each sentence before it was cut."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, sentence: int) -> NDArray[np.int32]:
        return self.ids[self.starts[sentence] : self.starts[sentence + 1]]

    @cached_property
    def lengths(self) -> Integers:
        """Number of tokens of each sentence that are kept here."""
        return np.diff(self.starts)

    def distinct(self) -> Integers:
        """Return every token that there is, once."""
        blocks = (self.ids[start : start + _BLOCK_TOKENS] for start in range(0, len(self.ids), _BLOCK_TOKENS))
        return reduce(np.union1d, blocks, np.empty(0, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class PairTokens:
    """Tokens of the distinct sentences of a pair set, and which two of them make each pair."""

    tokens: Tokens
    index: NDArray[np.int32]
    sides: NDArray[np.int8]
    """Which prompt each sentence has: the first texts' (0) or the second texts' (1); 0 if there is only one."""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def nbytes(self) -> int:
        """Bytes of memory and of temporary disk that it takes."""
        arrays = (self.tokens.ids, self.tokens.starts, self.tokens.whole, self.index, self.sides)
        return sum(array.nbytes for array in arrays)

    def both_orders(self) -> "PairTokens":
        """Return the pairs followed by the swapped pairs."""
        return PairTokens(self.tokens, np.concatenate([self.index, self.index[:, ::-1]]), self.sides)


def tokenise(tokenizer: Any, sentences: pa.Array | pa.ChunkedArray, *, max_tokens: int) -> Tokens:
    """Tokenise sentences, each cut to `max_tokens`; how long each one was is kept."""
    whole = np.zeros(len(sentences), dtype=np.int64)
    keep = slice(-max_tokens, None) if tokenizer.truncation_side == "left" else slice(max_tokens)

    def pieces() -> Iterator[NDArray[np.int32]]:
        for start in range(0, len(sentences), _SENTENCES_AT_ONCE):
            texts = sentences.slice(start, _SENTENCES_AT_ONCE).to_pylist()
            # Tokenizers cut after they have tokenised the whole text, so that its length costs nothing to know.
            encoded = tokenizer(
                texts,
                add_special_tokens=False,
                truncation=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )["input_ids"]
            whole[start : start + len(texts)] = [len(ids) for ids in encoded]
            yield np.concatenate([np.asarray(ids[keep], dtype=np.int32) for ids in encoded])
            advance(len(texts))

    with progress("tokenising", total=len(sentences)) as advance:
        ids = spool_array(pieces(), dtype=np.int32)
    return Tokens(ids, _starts(np.minimum(whole, max_tokens)), whole)


def _starts(lengths: Integers) -> Integers:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])


class PairTokeniser:
    """Tokenises pair sets with one tokenizer and remembers the last few: labelling, training and dev share them."""

    _remembered: ClassVar[OrderedDict[tuple[str, str], tuple[int, PairTokens]]] = OrderedDict()
    _lock: ClassVar[Lock] = Lock()

    def __init__(self, tokenizer: Any, *, prompts: tuple[str, str] = ("", "")) -> None:
        """Use `tokenizer` on texts, with the prompt of its side put before each."""
        self.tokenizer = tokenizer
        self._prompts = prompts
        self._key = fingerprint(tokenizer) + "\0".join(prompts)

    def __call__(self, pairs: PairSet, *, max_tokens: int) -> PairTokens:
        """Return the tokens of the pairs; a sentence keeps at least its first `max_tokens`."""
        key = (self._key, pairs.without_scores().hash)
        with self._lock:  # several threads of a server may score at a time
            kept, tokens = self._remembered.get(key, (0, None))
            if tokens is not None and kept >= max_tokens:
                self._remembered.move_to_end(key)
                return tokens
        # Some room, so that bi- and cross-encoders with different lengths are cut from the same tokens.
        cap = max(max_tokens, 128)
        tokens = self._tokenised(pairs, max_tokens=cap)
        with self._lock:
            self._remembered[key] = (cap, tokens)
            self._remembered.move_to_end(key)
            while len(self._remembered) > 1 and self._too_much():
                self._remembered.popitem(last=False)
        return tokens

    @classmethod
    def _too_much(cls) -> bool:
        held = sum(pairs.nbytes for _, pairs in cls._remembered.values())
        return len(cls._remembered) > _REMEMBERED or held > _REMEMBERED_BYTES

    def _tokenised(self, pairs: PairSet, *, max_tokens: int) -> PairTokens:
        """Tokenise the pairs, each distinct sentence once in every block of them; one block is in memory at a time."""
        whole, index, known = [np.empty(0, dtype=np.int64)], [np.empty((0, 2), dtype=np.int32)], 0
        sides = [np.empty(0, dtype=np.int8)]

        def ids() -> Iterator[NDArray[np.int32]]:
            nonlocal known
            for start in range(0, len(pairs), _BLOCK_PAIRS):
                distinct = pairs.between(start, start + _BLOCK_PAIRS).distinct()
                columns = []
                for side, (texts, places) in enumerate(self._by_side(distinct)):
                    tokens = self.sentences(texts, max_tokens=max_tokens, side=side)
                    whole.append(tokens.whole)
                    sides.append(np.full(len(tokens), side, dtype=np.int8))
                    columns.append(places + np.int32(known))
                    known += len(tokens)
                    yield tokens.ids
                index.append(np.column_stack(columns))

        joined = spool_array(ids(), dtype=np.int32)
        lengths = np.concatenate(whole)
        tokens = Tokens(joined, _starts(np.minimum(lengths, max_tokens)), lengths)
        return PairTokens(tokens, np.concatenate(index), np.concatenate(sides))

    def _by_side(self, distinct: Distinct) -> Iterator[tuple[pa.Array, NDArray[np.int32]]]:
        """Yield texts and where the pairs' texts are among them: of both sides at once if they share a prompt."""
        if self._prompts[0] == self._prompts[1]:
            yield distinct.sentences, distinct.index
            return
        for column in distinct.index.T:
            used, places = np.unique(column, return_inverse=True)
            yield distinct.sentences.take(pa.array(used)), places.astype(np.int32)

    def sentences(self, sentences: pa.Array | pa.ChunkedArray, *, max_tokens: int, side: int = 0) -> Tokens:
        """Return the tokens of sentences on one side of a pair, which are not remembered."""
        if self._prompts[side]:
            prompt, nothing = (pa.scalar(text, sentences.type) for text in (self._prompts[side], ""))
            sentences = pc.binary_join_element_wise(prompt, sentences, nothing)
        return tokenise(self.tokenizer, sentences, max_tokens=max_tokens)

    def unknown_share(self, pairs: PairSet, *, max_tokens: int) -> float:
        """Return which share of the pairs' tokens stands for text that the tokenizer does not know."""
        unknown, ids = self.tokenizer.unk_token_id, self(pairs, max_tokens=max_tokens).tokens.ids
        return float(np.mean(ids == unknown)) if unknown is not None and len(ids) else 0.0

    @classmethod
    def forget(cls) -> None:
        """Drop what is remembered."""
        cls._remembered.clear()


def fingerprint(tokenizer: Any) -> str:
    """Return a hash of everything that decides a tokenizer's output."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return f"{type(tokenizer).__name__}-{id(tokenizer)}"
    # Truncation and padding are settings of the last call, not of the tokenizer.
    settings = {**json.loads(backend.to_str()), "truncation": None, "padding": None}
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()


@dataclass(frozen=True)
class Segment:
    """Special tokens that stand at one place of an input, with their type ids."""

    ids: tuple[int, ...]
    types: tuple[int, ...]


@dataclass(frozen=True)
class SpecialTokens:
    """Where a tokenizer puts its special tokens, found by asking it: `[CLS] a [SEP]` and `[CLS] a [SEP] b [SEP]`."""

    specials: tuple[Segment, ...]
    text_types: tuple[int, ...]
    has_types: bool
    pad_id: int
    pad_type: int

    @classmethod
    def of(cls, tokenizer: Any, *, texts: int) -> "SpecialTokens":
        """Find the layout for inputs of one or two texts."""
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigurationError(
                f"the tokenizer {type(tokenizer).__name__} is written in Python; expected a fast one (tokenizer.json). "
                f"Give a model that has one, or convert it once with transformers.convert_slow_tokenizer"
            )
        if tokenizer.pad_token_id is None:
            raise ConfigurationError(
                f"the tokenizer of {tokenizer.name_or_path or type(tokenizer).__name__} has no padding token, so texts "
                f"of different lengths cannot share a batch; choose one (tokenizer.pad_token = ...) and save it again"
            )
        encoded = tokenizer(*["a"] * texts, return_token_type_ids=True)
        sequence = encoded.sequence_ids(0)
        types = encoded["token_type_ids"]
        specials, start = [], 0
        for text in range(texts):
            first = sequence.index(text)
            specials.append(_segment(encoded["input_ids"], types, slice(start, first)))
            start = first + sequence.count(text)
        specials.append(_segment(encoded["input_ids"], types, slice(start, None)))
        return cls(
            specials=tuple(specials),
            text_types=tuple(types[sequence.index(text)] for text in range(texts)),
            has_types="token_type_ids" in tokenizer.model_input_names,
            pad_id=tokenizer.pad_token_id,
            pad_type=tokenizer.pad_token_type_id,
        )

    @property
    def extra(self) -> int:
        """Number of special tokens in an input."""
        return sum(len(segment.ids) for segment in self.specials)

    @property
    def ids(self) -> list[int]:
        """The special tokens of an input and the padding."""
        return [*(token for segment in self.specials for token in segment.ids), self.pad_id]


def _segment(ids: list[int], types: list[int], place: slice) -> Segment:
    return Segment(tuple(ids[place]), tuple(types[place]))


def longest_first(first: Integers, second: Integers, *, limit: int) -> tuple[Integers, Integers]:
    """Cut pairs of lengths to a total of `limit`, the longer text first, exactly as fast tokenizers do."""
    short, long = np.minimum(first, second), np.maximum(first, second)
    fits, both_cut = short + long <= limit, 2 * short > limit
    kept_short = np.where(fits, short, np.where(both_cut, limit // 2, short))
    kept_long = np.where(fits, long, np.where(both_cut, limit - limit // 2, limit - short))
    swapped = first > second
    return np.where(swapped, kept_long, kept_short), np.where(swapped, kept_short, kept_long)
