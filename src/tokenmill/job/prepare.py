"""A job: configuration, plan and tokenizer, bound to its output."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import msgspec

from tokenmill.config import Config, ContentOptions, InputAccess, resume_hint
from tokenmill.encode import Tokenizer
from tokenmill.errors import DifferentJobError, OutputError
from tokenmill.job.mapped import tell_of_killed_run
from tokenmill.messages import NAMED_IN_MESSAGE, printable
from tokenmill.output.plan_file import Plan, Skipped
from tokenmill.output.receipts import Receipts
from tokenmill.output.schema import StoredJob, StoredOptions, StoredTokenizer, run_id_of
from tokenmill.output.store import Store
from tokenmill.plan.make import Planned
from tokenmill.records import InputFile
from tokenmill.storage.base import Reading, Storage
from tokenmill.unit.setup import UnitSetup


@dataclass(frozen=True)
class Job:
    """All of a job that is known before a unit runs."""

    config: Config
    plan: Plan
    skipped: Skipped
    inputs: Reading
    tokenizer: Tokenizer
    store: Store
    lock_handles: tuple[int, ...] = ()

    @cached_property
    def description(self) -> StoredJob:
        """The job as it is written to the output."""
        return describe_job(self.config, self.tokenizer)

    @cached_property
    def run_id(self) -> str:
        return run_id_of(self.description, self.plan.digest)

    @cached_property
    def receipts(self) -> Receipts:
        return Receipts(self.store.storage, self.config.seq_len, self.tokenizer.dtype)

    @cached_property
    def resume_hint(self) -> str:
        return resume_hint(self.config)

    def unit_setup(self) -> UnitSetup:
        """What running the units takes."""
        return UnitSetup(
            options=self.config.content(),
            batch_size=self.config.batch_size,
            tokenizer=self.tokenizer,
            inputs=self.inputs,
            receipts=self.receipts,
            mapped=self.config.read is InputAccess.MMAP,
            resume_hint=self.resume_hint,
        )

    @contextmanager
    def underway(self) -> Iterator[None]:
        """From here on the output is written to, and nothing in it may say that it is complete."""
        where = os.fsencode(self.inputs.location)
        self.store.prepare(self.description, self.plan, self.tokenizer.data, where)
        yield
        self.store.conclude()


def describe_job(options: ContentOptions, tokenizer: Tokenizer) -> StoredJob:
    """What makes two jobs the same, inputs aside."""
    stored = StoredTokenizer(
        name=tokenizer.name,
        sha256=tokenizer.sha256,
        vocab_size=tokenizer.vocab_size,
        eos_id=tokenizer.eos_id,
        bos_id=tokenizer.bos_id,
        pad_id=tokenizer.pad_id,
        dtype="uint16" if tokenizer.dtype.itemsize == 2 else "uint32",
    )
    return StoredJob(options=StoredOptions(**options.stored(tokenizer.eos_token)), tokenizer=stored)


@contextmanager
def open_job(config: Config, planned: Planned, tokenizer: Tokenizer, storage: Storage) -> Iterator[Job]:
    """Hold the output for this job; continue what is there if it is the same job, else refuse."""
    store = Store(storage)
    _refuse_foreign(store)
    with store.locked() as handles:
        tell_of_killed_run(store)
        if config.overwrite:
            store.clear()
        job = Job(config, planned.plan, planned.skipped, planned.inputs, tokenizer, store, handles)
        stored = store.read_job()
        before = store.read_plan()
        if stored is None or before is None:
            store.refuse_without_plan()
            yield job
        else:
            yield _continue(job, stored, before)


def _refuse_foreign(store: Store) -> None:
    where = store.storage.describe()
    try:
        foreign = store.is_foreign()
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise OutputError(f"{where} is a file: the output must be a directory (the last path is the output)") from None
    if foreign:
        raise OutputError(f"{where} holds files that are not tokenmill's: choose a new or an empty directory")


def _continue(job: Job, stored: StoredJob, before: Plan) -> Job:
    """The job on the units that were planned first, once it is certain that it is the same job."""
    changes = _Changes(before, job.plan)
    differences = [*_differences(job.description, stored), *changes.described()]
    if differences:
        raise DifferentJobError(
            f"{job.store.storage.describe()} holds a different job: {'; '.join(differences)}. Restore what "
            "differs, choose another directory, or start over with --overwrite"
        )
    # A renamed file is the same tokenizer, and keeps the name that is written down.
    tokenizer = replace(job.tokenizer, name=stored.tokenizer.name)
    return replace(job, plan=before.with_inputs(changes.repaired), tokenizer=tokenizer)


def _differences(new: StoredJob, old: StoredJob) -> Iterator[str]:
    old_options = msgspec.structs.asdict(old.options)
    for name, value in msgspec.structs.asdict(new.options).items():
        if old_options[name] != value:
            nothing = "off" if name == "eos_token" else "not given"
            was, is_now = (nothing if v is None else repr(v) for v in (old_options[name], value))
            yield f"--{name.replace('_', '-')} was {was} and is now {is_now}"
    before, now = old.tokenizer, new.tokenizer
    if before.sha256 != now.sha256:
        yield f"the tokenizer was {before.name} ({before.sha256[:12]}) and is now {now.name} with other content"
    elif msgspec.structs.replace(before, name="") != msgspec.structs.replace(now, name=""):
        yield "the tokenizer's special tokens differ"


class _Changes:
    """What became of the inputs between two plans. Both list them in the order of their bytes: one pass will do."""

    def __init__(self, before: Plan, now: Plan) -> None:
        self._names: dict[str, list[str]] = {}
        self._counts: Counter[str] = Counter()
        self.repaired: dict[int, InputFile] = {}
        olds = ((os.fsencode(file.name), "old", number, file) for number, file in before.inputs())
        news = ((os.fsencode(file.name), "new", number, file) for number, file in now.inputs())
        for _, group in groupby(heapq.merge(olds, news), key=lambda e: e[0]):
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

    def described(self) -> Iterator[str]:
        for what, names in self._names.items():
            more = self._counts[what] - len(names)
            yield f"{what}: {', '.join(names)}{f' and {more} more' if more > 0 else ''}"
