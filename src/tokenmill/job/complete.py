"""The end of a job: everything accounted for, not more rejected than allowed, the manifest written."""

from __future__ import annotations

from tokenmill.errors import LedgerError, RejectLimitError
from tokenmill.job.prepare import Job
from tokenmill.output import layout
from tokenmill.output.finish import finish, summarize, write_rejects
from tokenmill.output.schema import Summary
from tokenmill.records import Ledger, Reason

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
