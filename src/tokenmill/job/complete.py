"""The end of a job: everything accounted for, not more rejected than allowed, the manifest written."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from itertools import zip_longest

from tokenmill.errors import LedgerError, OutputError, RejectLimitError
from tokenmill.job.prepare import Job
from tokenmill.messages import counted, printable, some_of
from tokenmill.output import layout
from tokenmill.output.finish import committed, damaged_files, finish, public_rejects, summarize, write_rejects
from tokenmill.output.open import Output
from tokenmill.output.receipts import NOT_A_FILE, REMOVE, found_damaged
from tokenmill.output.schema import Receipt, Summary, decode, has_checksum, to_line
from tokenmill.output.spool import lines_of
from tokenmill.records import Ledger, Reason

log = logging.getLogger("tokenmill")

_NO_TEXT = (Reason.NO_TEXT_FIELD, Reason.TEXT_NOT_A_STRING)


def complete_job(job: Job) -> Summary:
    """Write rejects and manifest, unless there are more rejects than the job allows."""
    summary = summarize(job.receipts, job.plan, job.run_id)
    ledger = summary.ledger
    _refuse_changed_receipts(job)
    listed = write_rejects(job.receipts, job.plan)
    if listed != ledger.rejected:
        rejected = counted(ledger.rejected, "record was", "records were")
        raise LedgerError(f"{rejected} rejected, but {listed} are listed, please report this")
    if job.config.max_rejects.exceeded(ledger.rejected, ledger.records, final=True):
        raise too_many_rejects(job, ledger)
    finish(job.receipts, job.plan, job.description, summary, job.skipped)
    return summary


def _refuse_changed_receipts(job: Job) -> None:
    """Each was written only after it was checked: one that does not add up by now was changed."""
    for done in committed(job.receipts, job.plan):
        if not _adds_up(done.receipt, job.config.seq_len):
            where = job.store.storage.describe(layout.receipt_file(done.unit))
            raise OutputError(f"{where} is damaged (its ledger does not add up). {REMOVE}")


def _adds_up(receipt: Receipt, seq_len: int) -> bool:
    """Whether the ledger does, and chunks and rejects are those that it counts."""
    ledger, chunks = receipt.ledger, receipt.chunks
    tokens = ledger.tokens + ledger.separators - ledger.dropped_tokens
    found = sum(c.rows for c in chunks), sum(c.tokens for c in chunks), bool(receipt.rejects_bytes)
    return ledger.adds_up(seq_len) and found == (ledger.rows, tokens, bool(ledger.rejected))


def how_it_ended(job: Job) -> Summary | None:
    """The end of this very job, if it came to one and all that was written then is there and whole.

    Otherwise the job is to be finished once more: manifest, rejects and tokenizer follow from receipts and options.
    """
    output = Output(job.store.storage)
    if not output.is_complete:
        return None
    for problem in problems_at_the_end(job, output):
        log.warning("%s. It is made again from the receipts", problem)
        return None
    # Another run may skip other files of a folder that has them beside the same inputs: the manifest is to name them.
    is_same = output.summary.run_id == job.run_id and output.skipped_data == job.skipped.data()
    return output.summary if is_same else None


def problems_at_the_end(job: Job, output: Output) -> Iterator[str]:
    """What is wrong with what is written at the end of a job, each of which can be made again."""
    for name, check in (
        (layout.MANIFEST, _check_manifest),
        (layout.TOKENIZER, _check_tokenizer),
        (layout.REJECTS, _check_rejects),
    ):
        where = output.storage.describe(name)
        try:
            check(job, output)
        except OutputError:
            raise  # of what it is compared with, which cannot be made again
        except FileNotFoundError:
            yield f"{where} is missing"
        except OSError as error:
            with found_damaged(where):
                if error.errno not in NOT_A_FILE:
                    raise
            yield f"{where} cannot be read: {error.strerror or error}"
        except (ValueError, RecursionError) as error:
            yield f"{where} is damaged ({printable(error)})"


def _check_manifest(_: Job, output: Output) -> None:
    data = output.storage.map(layout.MANIFEST)
    if not has_checksum(data):
        raise ValueError("its checksum is wrong")
    decode(data, Summary)


def _check_tokenizer(job: Job, output: Output) -> None:
    if hashlib.sha256(output.storage.read(layout.TOKENIZER)).hexdigest() != job.description.tokenizer.sha256:
        raise ValueError("its checksum is wrong")


def _check_rejects(job: Job, output: Output) -> None:
    """There is no checksum of the list, so it is compared with what it was made from. Few jobs reject much."""
    wanted = (to_line(reject).encode("ascii") for reject in public_rejects(job.receipts, job.plan))
    found = lines_of(output.storage.open(layout.REJECTS))
    if not all(one == other for one, other in zip_longest(found, wanted)):
        raise ValueError("it is not what the units rejected")


def too_many_rejects(job: Job, ledger: Ledger) -> RejectLimitError:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(ledger.rejects_by_reason.items()))
    share = 100 * ledger.rejected / max(1, ledger.records)
    advice = "Fix the input and start over with --overwrite"
    if 2 * ledger.rejects_by_reason.get(Reason.TOO_LARGE, 0) > ledger.rejected:
        advice = "Start over with a higher --max-document-bytes and --overwrite"
    if 2 * sum(ledger.rejects_by_reason.get(reason, 0) for reason in _NO_TEXT) > ledger.records:
        advice = f"Is --text-field {job.config.text_field} right? If not, start over with another one and --overwrite"
    verb = "was" if ledger.rejected == 1 else "were"
    listed = f"They are listed in {job.store.storage.describe(layout.REJECTS)}. "
    if damaged := damaged_files(job.receipts, job.plan):
        listed += f"Damaged: {some_of(damaged)}. "
    return RejectLimitError(
        f"{ledger.rejected:,} of {counted(ledger.records, 'record')} {verb} rejected ({share:.3g} %: {reasons}), more "
        f"than --max-rejects {job.config.max_rejects}. {listed}{advice}, or {job.resume_hint} with a higher "
        "--max-rejects: it continues from here"
    )
