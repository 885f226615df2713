"""A finished output, opened: typed, and nothing of it read before it is asked for.

What `tokenmill.open`, `show`, `stats` and `verify` look at is this.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tokenmill.config import Use, local_path
from tokenmill.errors import InputError, OutputError, TokenizerError
from tokenmill.output import layout
from tokenmill.output.plan_file import Plan
from tokenmill.output.receipts import Receipts, advice
from tokenmill.output.schema import Catalog, RowIndex, SkippedEntry, SkippedFiles, StoredJob, Summary, decode
from tokenmill.output.store import Store
from tokenmill.records import SIDECAR_DTYPE, Sidecar, TokenIds
from tokenmill.storage.base import Reading, Storage
from tokenmill.storage.local import LocalStorage
from tokenmill.write.npy import map_array

T = TypeVar("T")

_VERIFY = "`tokenmill verify` names all that is damaged, and the units to run again"


class Chunk(Protocol):
    """A chunk as receipts and the manifest know it."""

    @property
    def name(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def tokens(self) -> int: ...


class Output:
    """An output directory; raises OutputError where it cannot be read."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.store = Store(storage)

    # job and plan

    @cached_property
    def job(self) -> StoredJob:
        job = self.store.read_job()
        if job is None or not self.store.has(layout.PLAN):
            raise self._not_an_output()
        return job

    def _not_an_output(self) -> InputError:
        where = self.storage.describe()
        try:
            self.storage.stat("")
        except FileNotFoundError:
            return InputError(f"there is no directory {where}")
        except OSError:
            pass  # whatever it is, it is not an output
        return InputError(f"{where} is not a tokenmill output: it has no {layout.JOB} and {layout.PLAN}")

    @cached_property
    def plan(self) -> Plan:
        plan = self.store.read_plan()
        assert plan is not None  # which `job` has looked at
        return plan

    @cached_property
    def receipts(self) -> Receipts:
        return Receipts(self.storage, self.job.options.seq_len, self.dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.job.tokenizer.dtype).newbyteorder("<")

    def tokenizer(self) -> bytes:
        try:
            return self.storage.read(layout.TOKENIZER)
        except OSError as error:
            where, way_out = self.storage.describe(layout.TOKENIZER), f"Remove {layout.MANIFEST} and run the job again"
            raise TokenizerError(f"{where} cannot be read: {error.strerror}. {way_out}") from error

    # manifest

    @property
    def is_complete(self) -> bool:
        return self.store.has(layout.MANIFEST)

    @cached_property
    def summary(self) -> Summary:
        """How the job ended."""
        return self._read_manifest(Summary)

    @cached_property
    def row_index(self) -> RowIndex:
        """What it takes to find a row."""
        return self._read_manifest(RowIndex)

    @cached_property
    def catalog(self) -> Catalog:
        """What it takes to tell where each document came from."""
        return self._read_manifest(Catalog)

    @property
    def skipped_data(self) -> list[SkippedEntry]:
        """What was skipped although it looks like data."""
        return [entry for entry in self._read_manifest(SkippedFiles).left_out if entry.looks_like_data]

    def _read_manifest(self, kind: type[T]) -> T:
        where = self.storage.describe(layout.MANIFEST)
        try:
            return decode(self.storage.map(layout.MANIFEST), kind)
        except (FileNotFoundError, NotADirectoryError):
            if not self.store.has(layout.JOB):
                raise self._not_an_output() from None
            what = f"{self.storage.describe()} is not complete: it has no {layout.MANIFEST}"
            raise OutputError(f"{what}. Run the job again to continue it") from None
        except (OSError, ValueError, RecursionError) as error:
            way_out = advice(error, "Remove it and run the same command again, or start over with --overwrite")
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise OutputError(f"{where} cannot be read: {why}. {way_out}") from error

    # chunks

    def rows(self, chunk: str, shape: tuple[int, int]) -> TokenIds:
        """The rows of a chunk, mapped, if they are so many and so long."""
        name = layout.chunk_file(chunk, layout.ROWS)
        found: TokenIds = self._map(name)
        if found.shape != shape or found.dtype.kind != "u":
            raise self._damaged(
                name, f"it is {found.dtype} {found.shape} and not {shape[0]:,} rows of {shape[1]:,} ids"
            )
        return found

    def sidecar(self, chunk: str, tokens: int) -> Sidecar:
        """Where documents end in a chunk of so many tokens and which records they are, mapped."""
        name = layout.chunk_file(chunk, layout.DOCUMENTS)
        found = self._map(name)
        if found.dtype != SIDECAR_DTYPE or found.ndim != 1:
            raise self._damaged(name, "it is not a sidecar")
        ends = found["end"]
        if len(ends) and not (ends[0] > 0 and ends[-1] <= tokens and (ends[1:] > ends[:-1]).all()):
            raise self._damaged(name, "the ends of documents do not increase within the chunk")
        return found

    def foreign_file(self, chunk: str, file: int) -> OutputError:
        """For whoever meets a document of a file that its unit does not have."""
        return self._damaged(layout.chunk_file(chunk, layout.DOCUMENTS), f"file {file} is not of its unit")

    def ids(self, chunk: str, documents: int) -> list[bytes]:
        """The ids of the documents that end in a chunk, each as JSON."""
        name = layout.chunk_file(chunk, layout.IDS)
        try:
            *lines, rest = self.storage.read(name).split(b"\n")
        except OSError as error:
            raise OutputError(f"{self.storage.describe(name)} cannot be read: {error.strerror}") from error
        if rest or len(lines) != documents:
            raise self._damaged(name, f"it must have {documents:,} lines")
        return lines

    def _map(self, name: str) -> npt.NDArray[Any]:
        try:
            return map_array(self.storage.map(name))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise OutputError(f"{self.storage.describe(name)} cannot be read: {why}. {_VERIFY}") from error

    def _damaged(self, name: str, why: str) -> OutputError:
        return OutputError(f"{self.storage.describe(name)} is damaged: {why}. {_VERIFY}")

    def documents(self, chunks: Iterable[Chunk], seq_len: int) -> Iterator[tuple[int, int, TokenIds]]:
        """File, record and tokens of the documents of one unit, put together across its chunks."""
        carry: list[TokenIds] = []
        for chunk in chunks:
            tokens = self.rows(chunk.name, (chunk.rows, seq_len)).ravel()[: chunk.tokens]
            start = 0
            for end, record, file in self.sidecar(chunk.name, len(tokens)).tolist():
                yield file, record, np.concatenate([*carry, tokens[start:end]]) if carry else tokens[start:end]
                carry, start = [], end
            if start < len(tokens):
                carry.append(tokens[start:])


def decode_id(line: bytes) -> Any:
    """A document's own id, from JSON; as text if Python cannot read it, such as a number of 5,000 digits."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode(errors="replace")


def output_storage(path: Path) -> LocalStorage:
    """An output directory as a storage, drafts included."""
    return LocalStorage(path, path / layout.DRAFTS)


def open_output(path: str | Path) -> Output:
    return Output(output_storage(Path(local_path(path, Use.FINISHED_OUTPUT))))


def last_inputs(storage: Reading) -> bytes | None:
    """Where the inputs were when the job ran last, if that is known."""
    try:
        return storage.read(layout.INPUTS)
    except OSError:
        return None
