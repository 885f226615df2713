"""The end of a job: everything accounted for, not more rejected than allowed, the manifest written."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from itertools import zip_longest

from tokenmill.errors import LedgerError, OutputError, RejectLimitError
from tokenmill.job.prepare import Job
from tokenmill.output import layout
from tokenmill.output.finish import finish, public_rejects, summarize, write_rejects
from tokenmill.output.open import Output
from tokenmill.output.schema import Summary, has_checksum, to_line
from tokenmill.output.spool import lines_of
from tokenmill.records import Ledger, Reason

log = logging.getLogger("tokenmill")

_NO_TEXT = (Reason.NO_TEXT_FIELD, Reason.TEXT_NOT_A_STRING)


def complete_job(job: Job) -> Summary:
    """Write rejects and manifest, unless there are more rejects than the job allows."""
    summary = summarize(job.receipts, job.plan, job.run_id)
    ledger = summary.ledger
    ledger.check(job.config.seq_len, "the whole job")
    listed = write_rejects(job.receipts, job.plan)
    if listed != ledger.rejected:
        raise LedgerError(f"{ledger.rejected} records were rejected, but {listed} are listed, please report this")
    if job.config.max_rejects.exceeded(ledger.rejected, ledger.records, final=True):
        raise too_many_rejects(job, ledger)
    finish(job.receipts, job.plan, job.description, summary, job.skipped)
    return summary


def how_it_ended(job: Job) -> Summary | None:
    """The end of this very job, if it came to one and all that was written then is there and whole.

    Otherwise the job is to be finished once more: manifest, rejects and tokenizer follow from receipts and options.
    """
    output = Output(job.store.storage)
    if not output.is_complete:
        return None
    for problem in _problems_at_the_end(job, output):
        log.warning("%s. It is made again from the receipts", problem)
        return None
    # Another run may skip other files of a folder that has them beside the same inputs: the manifest is to name them.
    is_same = output.summary.run_id == job.run_id and output.skipped_data == job.skipped.data()
    return output.summary if is_same else None


def _problems_at_the_end(job: Job, output: Output) -> Iterator[str]:
    storage, where = output.storage, output.storage.describe
    try:
        _ = output.summary
    except OutputError as error:
        yield f"{where(layout.MANIFEST)} is damaged ({error.__cause__})"
        return
    if not has_checksum(storage.map(layout.MANIFEST)):
        yield f"{where(layout.MANIFEST)} is damaged (its checksum is wrong)"
    if not output.store.has(layout.TOKENIZER):
        yield f"{where(layout.TOKENIZER)} is missing"
    elif hashlib.sha256(storage.read(layout.TOKENIZER)).hexdigest() != job.description.tokenizer.sha256:
        yield f"{where(layout.TOKENIZER)} is damaged (its checksum is wrong)"
    if not output.store.has(layout.REJECTS):
        yield f"{where(layout.REJECTS)} is missing"
    elif not _has_all_rejects(job, output):
        yield f"{where(layout.REJECTS)} is damaged (it does not say what the units rejected)"


def _has_all_rejects(job: Job, output: Output) -> bool:
    """There is no checksum of the list, so it is compared with what it was made from. Few jobs reject much."""
    wanted = (to_line(reject).encode("ascii") for reject in public_rejects(job.receipts, job.plan))
    return all(one == other for one, other in zip_longest(lines_of(output.storage.open(layout.REJECTS)), wanted))


def too_many_rejects(job: Job, ledger: Ledger) -> RejectLimitError:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(ledger.rejects_by_reason.items()))
    share = 100 * ledger.rejected / max(1, ledger.records)
    advice = "Fix the input and start over with --overwrite"
    if 2 * sum(ledger.rejects_by_reason.get(reason, 0) for reason in _NO_TEXT) > ledger.records:
        advice = f"Is --text-field {job.config.text_field} right? If not, start over with another one and --overwrite"
    return RejectLimitError(
        f"{ledger.rejected:,} of {ledger.records:,} records were rejected ({share:.3g} %: {reasons}), more than "
        f"--max-rejects {job.config.max_rejects}. They are listed in {job.store.storage.describe(layout.REJECTS)}. "
        f"{advice}, or {job.resume_hint} with a higher --max-rejects: it continues from here"
    )
