"""A job: configuration, plan and tokenizer, bound to its output directory."""

from __future__ import annotations

import hashlib
import heapq
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from tokenmill.config import Config
from tokenmill.encode import Tokenizer
from tokenmill.engines.budget import Budget
from tokenmill.errors import DifferentJobError, OutputError
from tokenmill.messages import printable
from tokenmill.output.plan_file import Plan
from tokenmill.output.store import Checkpoint, Store
from tokenmill.plan.make import NAMED_IN_MESSAGE
from tokenmill.records import InputFile, Receipt, Unit

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Job:
    """Everything that an engine needs to run units."""

    config: Config
    plan: Plan
    tokenizer: Tokenizer
    store: Store
    budget: Budget

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options that change a byte of the output, resolved."""
        c, t = self.config, self.tokenizer
        return {
            "text_field": c.text_field,
            "id_field": c.id_field,
            "special_tokens_in_text": str(c.special_tokens_in_text),
            "eos_token": t.eos_token,
            "bos_token": t.bos_token,
            "seq_len": c.seq_len,
            "sequences_per_chunk": c.sequences_per_chunk,
            "tail": str(c.tail),
            "max_document_bytes": c.max_document_bytes,
        }

    @property
    def description(self) -> dict[str, Any]:
        """The job as written to job.json. Nothing in it tells the machine, the folder or the time."""
        t = self.tokenizer
        return {
            "format_version": FORMAT_VERSION,
            "options": self.options,
            "tokenizer": {
                "name": t.name,
                "sha256": t.sha256,
                "vocab_size": t.vocab_size,
                "eos_id": t.eos_id,
                "bos_id": t.bos_id,
                "pad_id": t.pad_id,
                "dtype": t.dtype.name,
            },
        }

    @cached_property
    def run_id(self) -> str:
        return run_id(self.description, self.plan)

    @contextmanager
    def underway(self) -> Iterator[None]:
        """From here on the directory is written to, and nothing in it may say that it is complete."""
        self.store.prepare(self.description, self.plan, self.tokenizer.data)
        yield
        self.store.conclude()

    def finished(self, unit: Unit) -> Receipt | None:
        """The receipt of a unit that need not be run again: it is whole, and so is what it stands for."""
        receipt = self.store.receipt(unit)
        if receipt is None or receipt.missing or not self._is_whole(unit, receipt):
            return None
        return receipt

    def checkpoint(self, unit: Unit) -> Checkpoint | None:
        """Where an interrupted unit goes on, if what it had written is there.

        A unit that went on without a file begins anew: the file may be readable by now.
        """
        checkpoint = self.store.checkpoint(unit)
        if checkpoint is None or checkpoint.missing or not self._is_whole(unit, checkpoint):
            return None
        number, dtype = len(checkpoint.chunks), self.tokenizer.dtype
        return checkpoint if self.store.has_partial(unit, number, checkpoint.partial, dtype) else None

    def _is_whole(self, unit: Unit, state: Receipt | Checkpoint) -> bool:
        seq_len, dtype = self.config.seq_len, self.tokenizer.dtype
        chunks = all(self.store.has_chunk(c, seq_len, dtype) for c in state.chunks)
        return chunks and self.store.has_rejects(unit, state.rejects_bytes)


def run_id(description: dict[str, Any], plan: Plan) -> str:
    """Two jobs with the same id have the same output."""
    described = json.dumps(description, sort_keys=True)
    return hashlib.sha256(f"{described}\n{plan.digest}".encode()).hexdigest()


@contextmanager
def open_job(config: Config, plan: Plan, tokenizer: Tokenizer, budget: Budget) -> Iterator[Job]:
    """Hold the output directory for this job; continue what is there if it is the same job, else refuse."""
    store = Store(config.output)
    if store.root.exists() and not store.root.is_dir():
        raise OutputError(f"{printable(store.root)} is a file: the output must be a directory")
    if store.root.is_dir() and store.is_foreign():
        raise OutputError(
            f"{printable(store.root)} holds files that are not tokenmill's: choose a new or an empty directory"
        )
    with store.locked():
        if config.overwrite:
            store.clear()
        job = Job(config, plan, tokenizer, store, budget)
        stored = store.read_json(store.job)
        before = store.read_plan(plan.root)
        if stored is None or before is None:
            store.refuse_without_plan()
            yield job
        else:
            yield _continue(job, stored, before)


def _continue(job: Job, stored: dict[str, Any], before: Plan) -> Job:
    """The job on the units that were planned first, once it is certain that it is the same job."""
    changes = _Changes(before, job.plan)
    differences = [*_differences(job, stored), *changes.told()]
    if differences:
        raise DifferentJobError(
            f"{printable(job.store.root)} holds a different job: {'; '.join(differences)}. Choose another directory, "
            "or start anew with --overwrite"
        )
    before.left_out = job.plan.left_out
    # A renamed file is the same tokenizer, and keeps the name that is written down.
    tokenizer = replace(job.tokenizer, name=stored["tokenizer"]["name"])
    return replace(job, plan=before.with_inputs(changes.repaired), tokenizer=tokenizer)


def _differences(job: Job, stored: dict[str, Any]) -> Iterator[str]:
    new = job.description
    if stored.get("format_version") != FORMAT_VERSION:
        yield f"its format version is {stored.get('format_version')}, this program writes {FORMAT_VERSION}"
        return
    for name, value in new["options"].items():
        if (old := stored["options"].get(name)) != value:
            yield f"--{name.replace('_', '-')} was {old!r} and is {value!r}"
    if (old := stored["tokenizer"])["sha256"] != job.tokenizer.sha256:
        yield f"the tokenizer was {old['name']} ({old['sha256'][:12]}) and is {job.tokenizer.name} with other content"
    elif {**old, "name": ""} != {**new["tokenizer"], "name": ""}:
        yield "the tokenizer's special tokens differ"


class _Changes:
    """What became of the inputs between two plans. Both list them in the order of their bytes: one pass will do."""

    def __init__(self, before: Plan, now: Plan) -> None:
        self._names: dict[str, list[str]] = {}
        self._counts: Counter[str] = Counter()
        self.repaired: dict[int, InputFile] = {}
        olds = ((os.fsencode(file.name), "old", number, file) for number, file in before.inputs())
        news = ((os.fsencode(file.name), "new", number, file) for number, file in now.inputs())
        for _, group in groupby(heapq.merge(olds, news, key=lambda e: e[:2]), key=lambda e: e[0]):
            found = {which: (number, file) for _, which, number, file in group}
            if "new" not in found:
                self._note("input gone", found["old"][1])
            elif "old" not in found:
                self._note("input added", found["new"][1])
            else:
                self._compare(*found["old"], found["new"][1])

    def _compare(self, number: int, old: InputFile, new: InputFile) -> None:
        # A file that could not be read when the job was planned may have been repaired; one that can no longer be read
        # is missing, not different.
        if old.problem and not new.problem:
            self.repaired[number] = new
        elif not old.problem and not new.problem and old.fingerprint != new.fingerprint:
            self._note("input changed", new)

    def _note(self, what: str, file: InputFile) -> None:
        self._counts[what] += 1
        if self._counts[what] <= NAMED_IN_MESSAGE:
            self._names.setdefault(what, []).append(printable(file.name))

    def told(self) -> Iterator[str]:
        for what, names in self._names.items():
            more = self._counts[what] - len(names)
            yield f"{what}: {', '.join(names)}{f' and {more} more' if more > 0 else ''}"
