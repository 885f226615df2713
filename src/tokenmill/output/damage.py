"""Damaged inputs: collected part by part while a unit runs, put together by file when the job is finished."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tokenmill.messages import counted
from tokenmill.output.schema import DamagedFile
from tokenmill.records import Damage, InputFile, Reject


def with_rejects(known: tuple[Damage, ...], part: int, first: int, rejects: Iterable[Reject]) -> tuple[Damage, ...]:
    """The damage of a unit so far, and that of a block whose first record has this number in its part."""
    for reject in rejects:
        if reject.reason.is_damage:
            known = _with(known, _damage(part, first, reject))
    return known


def _damage(part: int, first: int, reject: Reject) -> Damage:
    return Damage(
        part=part,
        reason=reject.reason,
        detail=reject.detail,
        record=first + reject.record,
        offset=reject.offset,
        places=1,
        lost_rows=reject.loss.rows,
        unread_bytes=reject.loss.unread_bytes,
    )


def _with(known: tuple[Damage, ...], more: Damage) -> tuple[Damage, ...]:
    """Blocks come in order, so a part that is known is the last one."""
    if not known or known[-1].part != more.part:
        return (*known, more)
    last = known[-1]
    both = msgspec.structs.replace(
        last,
        places=last.places + more.places,
        lost_rows=_sum(last.lost_rows, more.lost_rows),
        unread_bytes=_sum(last.unread_bytes, more.unread_bytes),
    )
    return (*known[:-1], both)


def _sum(one: int | None, other: int | None) -> int | None:
    """Of what can be told."""
    return one if other is None else other if one is None else one + other


def damaged_file(damage: Damage, file: InputFile, first: int | None, before: DamagedFile | None) -> DamagedFile:
    """The damage of a file up to this part, whose first record has this number in it."""
    if before is not None:
        return msgspec.structs.replace(
            before,
            places=before.places + damage.places,
            lost_rows=_sum(before.lost_rows, damage.lost_rows),
            unread_bytes=_sum(before.unread_bytes, damage.unread_bytes),
        )
    return DamagedFile(
        reason=damage.reason,
        detail=damage.detail,
        record=None if first is None else first + damage.record,
        offset=None if file.format.has_rows else damage.offset,
        places=damage.places,
        lost_rows=damage.lost_rows,
        unread_bytes=damage.unread_bytes,
        size=file.size,
    )


def describe_damage(found: DamagedFile) -> str:
    """Where, why and how much, for people: "corrupt_file at record 7: … ; 3 rows are missing"."""
    where = "" if found.record is None else f" at record {found.record:,}"
    more = f", and {counted(found.places - 1, 'more place')}" if found.places > 1 else ""
    detail = found.detail.rstrip(".")  # libraries end what they say with one, and more follows here
    return f"{found.reason}{where}: {detail}{more}; {_missing(found)}"


def _missing(found: DamagedFile) -> str:
    told = []
    if found.lost_rows:
        told.append(f"{counted(found.lost_rows, 'row is', 'rows are')} missing")
    if found.unread_bytes:  # a file that was cut off has none, and what it had nobody knows
        told.append(f"{100 * found.unread_bytes / max(1, found.size):.3g} % of its bytes could not be read")
    if not told and found.lost_rows == 0:
        return "no row is known to be missing"
    return " and ".join(told) or "how much is missing cannot be told"
