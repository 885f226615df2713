"""Buffers that are lent, given back and lent again."""

from __future__ import annotations

from tokenmill.read.ring import BUFFER_BYTES, Ring


def test_a_ring_gives_a_buffer_again_once_it_is_back_and_another_before() -> None:
    ring = Ring()
    one, give_back = ring.lend()
    other, _ = ring.lend()
    assert one.obj is not other.obj
    assert len(one) == BUFFER_BYTES
    give_back()
    assert ring.lend()[0].obj is one.obj


def test_a_ring_joins_pieces_and_keeps_no_buffer_that_was_made_for_a_long_line() -> None:
    ring = Ring()
    view, give_back = ring.join([b"ab", b"", b"c"])
    assert bytes(view) == b"abc"
    assert len(view.obj) == BUFFER_BYTES  # type: ignore[arg-type]
    give_back()
    long = b"x" * (BUFFER_BYTES + 1)
    large, give_large_back = ring.join([long])
    assert bytes(large) == long
    give_large_back()
    assert ring.lend()[0].obj is view.obj
    assert len(ring.join([b"x" * BUFFER_BYTES])[0].obj) == BUFFER_BYTES  # type: ignore[arg-type]
