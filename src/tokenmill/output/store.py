"""A job in its output: what is written before any unit runs, and how all of it is removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from tokenmill.errors import DifferentJobError, OutputBusyError, OutputError
from tokenmill.messages import printable, why
from tokenmill.output import layout
from tokenmill.output.plan_file import Plan
from tokenmill.output.receipts import NOT_A_FILE, START_OVER, found_damaged
from tokenmill.output.schema import FORMAT_VERSION, StoredJob, decode_exactly, describes_a_job, format_version, to_text
from tokenmill.output.spool import Spool
from tokenmill.records import Unit
from tokenmill.storage.base import Reading, Storage

JOB_FILE_BYTES = 1 << 20
"""More than any job.json has."""


def is_job(storage: Reading, name: str) -> bool:
    """Whether a file says that its folder is the output of a job."""
    try:
        return describes_a_job(storage.read(name, 0, JOB_FILE_BYTES))
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Store:
    """The job-wide files of one output."""

    storage: Storage

    def has(self, name: str) -> bool:
        try:
            self.storage.stat(name)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return False
        return True

    @contextmanager
    def locked(self) -> Iterator[tuple[int, ...]]:
        """Hold the output; gives the handles that worker processes must inherit to hold it, too."""
        where = self.storage.describe()
        with ExitStack() as held:
            try:
                self.storage.make_folder(layout.LOGS)
                handles = held.enter_context(self.storage.locked(layout.LOCK))
            except BlockingIOError:
                raise OutputBusyError(
                    f"another run is writing to {where}: wait for it, or choose another directory"
                ) from None
            except OSError as error:
                raise OutputError(
                    f"cannot write to {where}: {why(error)}. Fix this, or choose another directory"
                ) from error
            yield handles

    def is_foreign(self) -> bool:
        """Whether there is something here that no run of tokenmill put here."""
        found = {entry.name: entry for entry in self.storage.list()}
        has_units = layout.UNITS in found and found[layout.UNITS].is_folder
        if is_job(self.storage, layout.JOB) or (layout.PLAN in found and has_units):
            return False
        # A run that died before job.json was in place leaves no more than this.
        drafts = {name for name, _ in self.storage.drafts()}
        return not (found.keys() <= {layout.LOGS, layout.DRAFTS} and drafts <= {layout.JOB})

    def clear(self) -> None:
        """Remove a job, logs aside. job.json goes last: until then the output is known to be ours.

        Before that the manifest, then receipts and checkpoints: each for good, and before what it stands for.
        """
        storage = self.storage
        storage.remove([layout.MANIFEST, layout.REJECTS])
        storage.sync()
        names = [name for name in self._names_in(layout.UNITS) if layout.is_receipt_or_checkpoint(name)]
        storage.remove(f"{layout.UNITS}/{name}" for name in names)
        with suppress(FileNotFoundError, NotADirectoryError):
            storage.sync(layout.UNITS)
        for folder in (layout.UNITS, layout.CHUNKS):
            storage.remove_folder(folder)
        self.conclude()
        storage.remove([layout.TOKENIZER, layout.PLAN, layout.JOB])

    def units_with_checkpoints(self, plan: Plan) -> list[Unit]:
        names = sorted(filter(None, map(layout.unit_of_checkpoint, self._names_in(layout.UNITS))))
        numbers = (int(name) for name in names if name.isdecimal())
        return [plan.unit(number) for number in numbers if number < len(plan.sizes)]

    def _names_in(self, folder: str) -> list[str]:
        try:
            return [entry.name for entry in self.storage.list(folder)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def prepare(self, job: StoredJob, plan: Plan, tokenizer: bytes, inputs: bytes) -> None:
        """Write the job and its plan, before any unit; whatever a dead run left half-written goes.

        `inputs` says where they are, for `verify`; it is not part of the job, so it is kept with the logs.
        """
        storage = self.storage
        storage.make_folder(layout.DRAFTS)
        checkpoints = set(filter(None, map(layout.unit_of_checkpoint, self._names_in(layout.UNITS))))
        # Only what a checkpoint may go on with is kept.
        storage.remove_drafts([n for n, _ in storage.drafts() if layout.unit_of_draft(n) not in checkpoints])
        storage.remove([layout.MANIFEST])
        if self.read_job() != job:
            storage.publish(layout.JOB, [to_text(job).encode()])
        if (stored := self.read_plan()) is None or stored.digest != plan.digest:
            storage.publish(layout.PLAN, plan.lines())
        if not self._holds(layout.TOKENIZER, tokenizer):
            storage.publish(layout.TOKENIZER, [tokenizer])
        storage.remove([layout.INPUTS])
        with storage.append(layout.INPUTS) as log:
            log.write(inputs)
        for folder in (layout.CHUNKS, layout.UNITS):
            storage.make_folder(folder)
        self._remove_checkpoints_behind_receipts()
        storage.sync()  # the manifest is gone, the folders are there, before any unit is touched

    def _holds(self, name: str, data: bytes) -> bool:
        try:
            return self.storage.read(name) == data
        except OSError as error:
            if error.errno not in NOT_A_FILE:
                raise
            return False  # gone, or something else in its place

    def _remove_checkpoints_behind_receipts(self) -> None:
        """Of a run that died between the receipt and the removal of the checkpoint."""
        names = set(self._names_in(layout.UNITS))
        for name in names:
            unit = layout.unit_of_checkpoint(name)
            if unit is not None and names.issuperset(layout.unit_files(unit, has_rejects=False)):
                self.storage.remove([f"{layout.UNITS}/{name}"])

    def conclude(self) -> None:
        """Nothing is half-written any more."""
        self.storage.remove_drafts()
        self.storage.remove_folder(layout.DRAFTS)

    def read_job(self) -> StoredJob | None:
        """Raises DifferentJobError for an output of another version of tokenmill."""
        where = self.storage.describe(layout.JOB)
        with found_damaged(where, START_OVER):
            try:
                data = self.storage.read(layout.JOB)
            except (FileNotFoundError, NotADirectoryError):
                return None
            if (version := format_version(data)) not in (FORMAT_VERSION, None):
                raise DifferentJobError(
                    f"{where}: its format version is {printable(version)}, this program's is {FORMAT_VERSION}. "
                    f"Choose another directory, or {START_OVER[0].lower()}{START_OVER[1:]}"
                )
            return decode_exactly(data, StoredJob)

    def read_plan(self) -> Plan | None:
        with found_damaged(self.storage.describe(layout.PLAN), START_OVER):
            try:
                source = self.storage.open(layout.PLAN)
            except FileNotFoundError:
                return None
            plan = Plan(Spool(source))
            if not plan.sizes:
                raise ValueError("no units")
            return plan

    def refuse_without_plan(self) -> None:
        """The plan is in place before any unit: without it, units belong to no job."""
        if self._names_in(layout.UNITS):
            missing = self.storage.describe(layout.PLAN if self.has(layout.JOB) else layout.JOB)
            raise OutputError(f"{missing} is missing, but there are units: start over with --overwrite")
