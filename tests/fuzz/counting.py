"""How many lines of data a file holds, counted in the plainest way there is: the measure that readers are held to."""

import csv

_LIMIT = 1 << 20


def _lines(content: bytes) -> list[bytes]:
    """Cut into lines; what follows the last line end keeps its carriage return, for it ends no line."""
    *ended, last = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [*(line.removesuffix(b"\r") for line in ended), last]


def count_nonblank(content: bytes) -> int:
    """Count the lines with anything but white space: JSONL and plain text."""
    return sum(1 for line in _lines(content) if line and not line.isspace())


def count_tsv(content: bytes) -> int:
    """Count the lines that are not empty, the header among them."""
    return sum(1 for line in _lines(content) if line)


def count_csv(content: bytes) -> int:
    """Count records, the header among them: each the fewest lines that parse, else one line that is bad."""
    lines, place, count = _lines(content), 0, 0
    while place < len(lines):
        # A record of one empty field, quoted or not, is a blank line.
        count += lines[place] not in (b"", b'""')
        place += _record(lines, place)
    return count


def _record(lines: list[bytes], start: int) -> int:
    """Return how many lines the record that starts here has; one if it is broken or never ends."""
    taken: list[str] = []
    size = 0
    for line in lines[start:]:
        size += len(line)
        try:
            taken.append(line.decode() + "\n")
            if taken[1:] and size > _LIMIT:
                return 1
            next(csv.reader(taken, strict=True))
        except UnicodeDecodeError:
            return 1
        except csv.Error as error:
            if "unexpected end of data" not in str(error):
                return 1
        else:
            return len(taken)
    return 1
