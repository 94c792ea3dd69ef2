"""From sound bytes to unsound ones: random damage of the kinds that files really have."""

from collections.abc import Callable
from pathlib import Path
from random import Random

Mutator = Callable[[Random, bytearray], None]

TOKENS = (
    *(b"\n", b"\r\n", b"\r", b"\n\n", b"\t", b",", b'"', b'""', b'"\n"', b"\\", b"{", b"}", b"[", b"]", b":", b"="),
    *(b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1a", b"\x0b"),
    *(b"\\ud800", b"\\u0000", b"\\x", b"\xe2\x80\xa8", b"\xe3\x80\x80", b"\xc2\xa0", b"\xe2\x80\xae", b"\x85", b"'"),
    *(b"NaN", b"nan", b"Infinity", b"-inf", b"1e999", b"-1e-999", b"0x1F", b"1_000", b"9" * 400, b"9" * 5000, b"true"),
    *(b"null", b'" "', b"[]", b"{}", b'{"a":' * 30, b"[" * 200, b'{"a":' * 3000, b"[" * 20_000, b"'''", b'"""', b"#"),
    *(b"sentence1", b"sentence2", b"score", b"label", b"text", b"../../etc/passwd", b"<script>", b"$(id)", b"%s%n"),
)
"""What breaks parsers: line ends, quotes, broken UTF-8, half surrogates, odd numbers, depth."""


def mutate(random: Random, data: bytes) -> bytes:
    """Damage data in one to six ways, one after the other."""
    damaged = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        random.choice(_MUTATORS)(random, damaged)
    return bytes(damaged)


def _place(random: Random, data: bytearray) -> int:
    return random.randrange(len(data) + 1)


def _span(random: Random, data: bytearray) -> slice:
    start = _place(random, data)
    return slice(start, start + random.choice((1, 1, 2, 4, 16, 64)))


def _flip(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _overwrite(random: Random, data: bytearray) -> None:
    data[_span(random, data)] = random.randbytes(random.randrange(8))


def _delete(random: Random, data: bytearray) -> None:
    del data[_span(random, data)]


def _repeat(random: Random, data: bytearray) -> None:
    place = _span(random, data)
    data[place] = bytes(data[place]) * random.choice((2, 2, 3, 50))


def _insert(random: Random, data: bytearray) -> None:
    place = _place(random, data)
    data[place:place] = random.choice(TOKENS)


def _replace_word(random: Random, data: bytearray) -> None:
    words = bytes(data).split(b" ")
    words[random.randrange(len(words))] = random.choice(TOKENS)
    data[:] = b" ".join(words)


def _cut(random: Random, data: bytearray) -> None:
    del data[_place(random, data) :]


def _move_line(random: Random, data: bytearray) -> None:
    lines = bytes(data).split(b"\n")
    line = lines.pop(random.randrange(len(lines)))
    lines.insert(random.randrange(len(lines) + 1), line)
    data[:] = b"\n".join(lines)


def _other_line_ends(random: Random, data: bytearray) -> None:
    parts = bytes(data).split(b"\n")
    ends = (b"\n", b"\r\n", b"\r", b"\n\n", b"")
    data[:] = b"".join(part + random.choice(ends) for part in parts)


def _split_field(random: Random, data: bytearray) -> None:
    """Take one separator away, or put another in its place: ragged rows and one-sided pairs."""
    places = [place for place, byte in enumerate(data) if byte in b"\t,:"]
    if places:
        place = random.choice(places)
        data[place : place + 1] = random.choice((b"", b"\t\t", b",,", b"::", b" "))


def _huge(random: Random, data: bytearray) -> None:
    if random.random() < 0.03:
        place = _place(random, data)
        data[place:place] = random.choice((b"a", b" ", b"\xc3\xa9", b'"', b"\0")) * ((1 << 20) + random.randrange(8))


_MUTATORS: tuple[Mutator, ...] = (
    *(_flip, _overwrite, _delete, _repeat, _insert, _insert, _insert, _replace_word),
    *(_cut, _move_line, _other_line_ends, _split_field, _huge),
)


def damage(random: Random, file: Path) -> None:
    """Remove a file, empty it or change some of its bytes."""
    match random.randrange(4):
        case 0:
            file.unlink()
        case 1:
            file.write_bytes(b"")
        case _:
            file.write_bytes(mutate(random, file.read_bytes()))
