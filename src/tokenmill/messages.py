"""Text for people: sizes, durations, tables, and foreign text that is safe to print."""

from __future__ import annotations

import bisect
import difflib
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice

NAMED_IN_MESSAGE = 5

_UNITS = ("B", "kB", "MB", "GB", "TB")


def printable(name: object) -> str:
    r"""A file name or other foreign text that is safe to print: "a\nb" -> "a\\nb"."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(name))


def why(error: OSError) -> str:
    """What the system says of a file, and which file if it says so: "Is a directory (manifest.json)"."""
    name = error.filename2 or error.filename
    said = error.strerror or str(error)
    return f"{said} ({printable(os.path.basename(os.fsdecode(name)))})" if isinstance(name, str | bytes) else said


def without_name(name: str, what: str) -> str:
    """What there is to say of a file that was named just before: "a.jsonl cannot be read" -> "it cannot be read"."""
    return f"it {what.removeprefix(start)}" if what.startswith(start := f"{printable(name)} ") else what


def size(count: float) -> str:
    """Bytes for people: size(1536000) -> "1.5 MB"."""
    for unit in _UNITS[:-1]:
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_UNITS[-1]}"


def size_of(done: float, total: float) -> str:
    """A part of a size, in the unit of the whole: size_of(17_680_000, 39_000_000) -> "17.7 / 39.0 MB"."""
    whole, unit = size(total).split()
    digits = 0 if unit == "B" else 1
    return f"{done / 1000 ** _UNITS.index(unit):.{digits}f} / {whole} {unit}"


def short(count: int) -> str:
    """A count in at most five characters: short(39_012_345) -> "39.0M"."""
    if count < 10_000:
        return f"{count:,}"
    value = float(f"{count:.3g}")  # rounded first: 999,999 is 1.00M, not 1000k
    power = min(4, (len(f"{value:.0f}") - 1) // 3)
    value /= 1000**power
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}{' kMBT'[power]}"


def duration(seconds: float) -> str:
    """Seconds for people: duration(3700) -> "1:01:40"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """Columns for the eye: the first to the left, the others to the right."""
    widths = [max(map(columns_of, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = (cell.rjust(width - columns_of(cell) + len(cell)) for cell, width in zip(rest, widths[1:], strict=True))
        yield "  ".join([first + " " * (widths[0] - columns_of(first)), *cells]).rstrip()


def table(rows: Sequence[tuple[str, ...]], wide: int | None, droppable: Sequence[str]) -> Iterable[str]:
    """Columns under their names. Where the room is short, those that may be dropped are, the first of them first."""
    for name in droppable:
        if wide is None or sum(max(map(columns_of, c)) + 2 for c in zip(*rows, strict=True)) - 2 <= wide:
            break
        place = rows[0].index(name)
        rows = [row[:place] + row[place + 1 :] for row in rows]
    return aligned(rows)


def columns_of(text: str) -> int:
    """How many columns a text takes on a terminal: wide characters take two, marks on others none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(name: str, most: int) -> str:
    """A name in so many columns, without its middle: shortened("corpus/part-00017.jsonl", 15) -> "corpus/…7.jsonl"."""
    if columns_of(name) <= most:
        return name
    head, tail = most // 2, most - most // 2 - 1
    return first_columns(name, head) + "…" + first_columns(name[::-1], tail)[::-1]


def first_columns(text: str, most: int) -> str:
    """As much of a text as fits into so many columns."""
    taken = list(accumulate(map(_columns, text)))
    return text[: bisect.bisect_right(taken, most)]


def wrapped(line: str, most: int, indent: int) -> str:
    """A line in lines of so many columns, those after the first indented. A long word, such as a path, stays whole."""
    lines: list[str] = []
    for word in line.split(" "):
        if lines and columns_of(lines[-1]) + 1 + columns_of(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * indent + word if lines else word)
    return "\n".join(lines)


def near(word: str, known: Iterable[str]) -> str | None:
    """What was meant by a misspelt or shortened word, if that is clear: near("seq_lenght", [...]) -> "seq_len"."""
    candidates = {name.lstrip("-"): name for name in known}
    bare = word.lstrip("-").lower()
    begun = [name for name in candidates if bare and name.startswith(bare)]
    close = begun or difflib.get_close_matches(bare, candidates, n=1, cutoff=0.65)
    return candidates[close[0]] if close else None


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a word that is not one of a few: "; did you mean 'seq_len'?", or all of them."""
    candidates = list(known)
    meant = near(word, candidates)
    return f"; did you mean {meant!r}?" if meant else f"; known: {', '.join(sorted(candidates))}"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """A number that agrees with its noun: counted(1, "file") -> "1 file", counted(2000, "file") -> "2,000 files"."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def some_of(names: Sequence[object], total: int | None = None, most: int = NAMED_IN_MESSAGE) -> str:
    """The first of many names: "a.md, b.md and 7 more"."""
    more = (len(names) if total is None else total) - len(names[:most])
    return ", ".join(map(printable, names[:most])) + (f" and {more:,} more" if more > 0 else "")


def first_few(entries: Iterable[tuple[str, str]], most: int = NAMED_IN_MESSAGE) -> str:
    """The first of many names for each thing that is said of some: "a.md, b.md and 7 more (no text); c.md (hidden)"."""
    names: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for name, said in entries:
        counts[said] += 1
        if len(named := names.setdefault(said, [])) < most:
            named.append(name)
    told = [f"{some_of(named, counts[said], most)} ({said})" for said, named in islice(names.items(), most)]
    more = sum(counts[said] for said in islice(names, most, None))
    return "; ".join(told) + (f"; and {more:,} more" if more else "")
