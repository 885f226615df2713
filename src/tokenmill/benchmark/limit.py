"""The limit: the CPU seconds of the bare kernels on the user's data. Nothing that uses them can be faster.

Each library call is made on the same blocks as in a run, one thread, with nothing else: no line numbers, no ledger,
no sidecar, no checksums, no retries, no checkpoints, no flushing to disk. `python -m tokenmill.benchmark.limit CONFIG`
prints the result as JSON; a fresh process, so that the caches of the encoder are as cold as those of a run.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from time import thread_time
from typing import Any, BinaryIO

import msgspec
import numpy as np

from tokenmill.config import Config
from tokenmill.encode import build_encoder, resolve_tokenizer
from tokenmill.plan.make import make_plan
from tokenmill.read.corpus import Corpus
from tokenmill.read.decompress import BrokenStreamError, pieces
from tokenmill.read.lines import BLOCK_BYTES
from tokenmill.read.pick import Picker
from tokenmill.records import Format, InputFile, StageSeconds
from tokenmill.storage.base import Reading

_BAD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Limit:
    """Runs the kernels over files and counts their CPU time."""

    def __init__(self, config: Config, out: BinaryIO) -> None:
        self._tokenizer = resolve_tokenizer(config)
        self._encoder = build_encoder(self._tokenizer, config.encoder, config.special_tokens_in_text)
        self._field = config.text_field
        self._picker = Picker(config.text_field)
        self._out = out
        self.stage_seconds = StageSeconds()

    def add(self, inputs: Reading, file: InputFile) -> None:
        if file.format.has_rows:
            texts = self._table(Path(inputs.location) / file.name, file.format)
        elif file.format is Format.TEXT:
            texts = iter([[b"".join(self._pieces(inputs, file)).decode(errors="replace")]])
        else:
            texts = map(self._parse, self._blocks(inputs, file))
        for batch in texts:
            self._encode(batch)

    def _pieces(self, inputs: Reading, file: InputFile) -> Iterator[bytes]:
        with inputs.open(file.name) as opened:
            source = pieces(opened, file.codec)
            while True:
                begun = thread_time()
                try:
                    piece = next(source, b"")
                except BrokenStreamError:
                    return
                self.stage_seconds.read += thread_time() - begun
                if not piece:
                    return
                yield piece

    def _blocks(self, inputs: Reading, file: InputFile) -> Iterator[bytes]:
        """Whole lines, about as many bytes of them as a run takes at a time."""
        held: list[bytes] = []
        size = 0
        for piece in self._pieces(inputs, file):
            begun = thread_time()
            held.append(piece)
            size += len(piece)
            if size >= BLOCK_BYTES and (cut := piece.rfind(b"\n") + 1):
                block = b"".join([*held[:-1], piece[:cut]])
                held, size = [piece[cut:]], len(piece) - cut
                self.stage_seconds.read += thread_time() - begun
                yield block
        yield b"".join(held)

    def _parse(self, block: bytes) -> list[str]:
        begun = thread_time()
        try:
            texts = self._picker.texts(self._picker.decode_lines(block))
        except _BAD:  # a bad line among them, which a run looks into
            texts = None
        if texts is None:
            texts = list(self._good(block.split(b"\n")))
        self.stage_seconds.parse += thread_time() - begun
        return [t for t in texts if t]

    def _good(self, lines: list[bytes]) -> Iterator[str]:
        for line in lines:
            try:
                text = self._picker.text(self._picker.decode(line))
            except _BAD:
                continue
            if isinstance(text, str):
                yield text

    def _table(self, path: Path, format_: Format) -> Iterator[list[str]]:
        import pyarrow as pa

        from tokenmill.read.rows import has_field, leaf_of, raw_values

        field = self._field
        rows = _parquet_rows(path, field) if format_ is Format.PARQUET else _arrow_rows(path)
        while True:
            begun = thread_time()
            try:
                batch = next(rows, None)
            except (pa.ArrowException, OSError, ValueError):
                return
            if batch is None or not has_field(batch.schema, field):
                return
            read = thread_time()
            values = (v for v in raw_values(leaf_of(batch, field)) if v and isinstance(v, bytes))
            texts = [v.decode(errors="replace") for v in values]
            self.stage_seconds.read += read - begun
            self.stage_seconds.parse += thread_time() - read
            yield texts

    def _encode(self, texts: list[str]) -> None:
        if not texts:
            return
        begun = thread_time()
        tokens = self._encoder.encode(texts)
        encoded = thread_time()
        ids = tokens.token_ids.astype(self._tokenizer.dtype)
        if (eos := self._tokenizer.eos_id) is not None:
            ids = np.insert(ids, tokens.offsets[1:], np.array(eos, self._tokenizer.dtype))
        packed = thread_time()
        self._out.write(ids.data)
        self.stage_seconds.encode += encoded - begun
        self.stage_seconds.pack += packed - encoded
        self.stage_seconds.write += thread_time() - packed


def _parquet_rows(path: Path, field: str) -> Iterator[Any]:
    import pyarrow.parquet as pq

    yield from pq.ParquetFile(path).iter_batches(batch_size=512, columns=[field], use_threads=False)


def _arrow_rows(path: Path) -> Iterator[Any]:
    import pyarrow as pa

    with pa.OSFile(str(path), "r") as file:
        if file.read(6) != b"ARROW1":
            file.seek(0)
            yield from pa.ipc.open_stream(file)
            return
        reader = pa.ipc.open_file(file)
        yield from map(reader.get_batch, range(reader.num_record_batches))


def main() -> None:
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    options = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(dir=options.pop("scratch")) as work:
        config = Config(output=Path(work) / "out", **options)
        planned = make_plan(config.inputs, config.output, Corpus)
        with (Path(work) / "tokens").open("wb", buffering=0) as out:
            limit = Limit(config, out)
            for _, file in planned.plan.inputs():
                if file.problem is None:
                    limit.add(planned.inputs, file)
    print(json.dumps(asdict(limit.stage_seconds)))


if __name__ == "__main__":
    main()
