"""Rows as a person wants to look at them: the text of each token, documents, and where they came from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.errors import ConfigError, TokenizerError
from tokenmill.load.rows import Rows, load_array
from tokenmill.load.rows import open as open_rows
from tokenmill.messages import printable

MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a row: part of a document, or (`file` None) padding."""

    start: int
    end: int
    file: str | None
    record: int | None
    begins: bool
    ends: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One row, taken apart."""

    number: int
    ids: list[int]
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class TokenText:
    """Text that one token gives, or several together where a character is spread over them."""

    text: str
    ids: list[int]


class Viewer:
    """Looks into an output directory."""

    def __init__(self, output: str | Path) -> None:
        self.rows: Rows = open_rows(output)
        self._chunks: list[dict[str, Any]] = self.rows.manifest["chunks"]
        self._decoder = _Decoder(Path(output) / "tokenizer.json")

    def row(self, number: int) -> Row:
        if not 0 <= number < len(self.rows):
            raise ConfigError(f"there is no row {number}: the output has {len(self.rows):,} rows, from 0 on")
        chunk, within = self.rows.locate(number)
        length = self.rows.seq_len
        first, last = within * length, (within + 1) * length
        spans = [
            Span(
                max(d.start, first) - first,
                min(d.end, last) - first,
                d.file,
                d.record,
                begins,
                d.ends and d.end <= last,
            )
            for d in self._documents(chunk)
            if d.start < last and d.end > first
            for begins in (d.begins and d.start >= first,)
        ]
        used = spans[-1].end if spans else 0
        if used < length:
            spans.append(Span(used, length, None, None, True, True))
        return Row(number, self.rows[number].tolist(), spans)

    def _documents(self, number: int) -> Iterator[Span]:
        """The documents of a chunk; the first may have begun before it, the last may end behind it."""
        chunk = self._chunks[number]
        start, begins = 0, not self._goes_on(number - 1, chunk["unit"])
        for end, record, file in self._sidecar(number):
            yield Span(start, end, *self._origin(chunk["unit"], file, record), begins, True)
            start, begins = end, True
        if start < chunk["tokens"]:
            yield Span(start, chunk["tokens"], *self._continued(number), begins, False)

    def _goes_on(self, number: int, unit: int) -> bool:
        """Whether the last document of a chunk goes on in the next one of the unit."""
        if number < 0 or self._chunks[number]["unit"] != unit:
            return False
        ends = [end for end, _, _ in self._sidecar(number)[-1:]]
        return ends != [self._chunks[number]["tokens"]]

    def _continued(self, number: int) -> tuple[str | None, int | None]:
        """Where the document came from that ends in a later chunk, if it ends anywhere."""
        unit = self._chunks[number]["unit"]
        for later in range(number + 1, len(self._chunks)):
            if self._chunks[later]["unit"] != unit:
                break
            for _, record, file in self._sidecar(later)[:1]:
                return self._origin(unit, file, record)
        return "(a document whose end was dropped)", None

    def _sidecar(self, number: int) -> list[tuple[int, int, int]]:
        path = self.rows.root / "chunks" / f"{self._chunks[number]['name']}.docs.npy"
        found: list[tuple[int, int, int]] = load_array(path).tolist()
        return found

    def _origin(self, unit: int, file: int, record: int) -> tuple[str, int | None]:
        manifest = self.rows.manifest
        first = next(p["first_record"] for p in manifest["units"][unit]["parts"] if p["file"] == file)
        return manifest["inputs"][file]["name"], None if first is None else first + record

    def pieces(self, ids: list[int]) -> list[TokenText]:
        return self._decoder.pieces(ids)

    def sample(self, count: int, seed: int) -> list[int]:
        """Row numbers at random, in order."""
        total = len(self.rows)
        return sorted(random.Random(seed).sample(range(total), min(count, total)))

    def find(self, file: str, record: int) -> list[int]:
        """The rows that a document of this file (a part of its name will do) and line lies in."""
        number = self._file(file)
        for index, chunk in enumerate(self._chunks):
            parts = self.rows.manifest["units"][chunk["unit"]]["parts"]
            part = next((p for p in parts if p["file"] == number), None)
            if part is None or part["first_record"] is None:
                continue
            start = 0
            for end, found, found_file in self._sidecar(index):
                if found_file == number and part["first_record"] + found == record:
                    return self._rows_of(index, start, end)
                start = end
        name = self.rows.manifest["inputs"][number]["name"]
        raise ConfigError(
            f"record {record} of {printable(name)} is in no row: it is empty, rejected (see rejects.jsonl) or not there"
        )

    def _rows_of(self, chunk: int, start: int, end: int) -> list[int]:
        """Of a document at these tokens of a chunk; if it is the first one, it may have begun in chunks before."""
        length = self.rows.seq_len
        base = self.rows.first_row(chunk)
        first = base + start // length
        while start == 0 and self._goes_on(chunk - 1, self._chunks[chunk]["unit"]):
            chunk -= 1
            start = max((end for end, _, _ in self._sidecar(chunk)[-1:]), default=0)
            first = self.rows.first_row(chunk) + start // length
        return list(range(first, base + (end - 1) // length + 1))

    def _file(self, name: str) -> int:
        inputs = self.rows.manifest["inputs"]
        exact = [n for n, i in enumerate(inputs) if i["name"] == name]
        found = exact or [n for n, i in enumerate(inputs) if name in i["name"]]
        if len(found) != 1:
            some = ", ".join(printable(inputs[n]["name"]) for n in found[:MOST_NAMED])
            problem = f"{len(found)} inputs have {name!r} in their name: {some}" if found else f"no input has {name!r}"
            raise ConfigError(f"--file: {problem}{'' if found else ' in its name'}")
        return found[0]


class _Decoder:
    def __init__(self, path: Path) -> None:
        import tokenizers
        from tokenizers.decoders import DecodeStream

        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception for whatever is wrong
            raise TokenizerError(f"{printable(path)} cannot be loaded: {error}") from error
        self._stream = DecodeStream

    def pieces(self, ids: list[int]) -> list[TokenText]:
        """Token by token; where a character is spread over several, these together."""
        stream = self._stream(skip_special_tokens=False)
        found: list[TokenText] = []
        held: list[int] = []
        for number in ids:
            held.append(number)
            text = stream.step(self._tokenizer, number)
            if text is not None:
                found.append(TokenText(text, held))
                held = []
        if held:
            found.append(TokenText("\N{REPLACEMENT CHARACTER}", held))
        return found
