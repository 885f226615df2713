"""A finished output that is run again: what was written at its end is there and whole, or is made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run, texts, tree
from tests.support.damage import edit_text, flip
from tokenmill.check.verify import verify
from tokenmill.errors import OutputError

NAMES = ("manifest.json", "rejects.jsonl", "tokenizer.json")


@pytest.fixture
def output(inputs: Path, tmp_path: Path, run: Run) -> Path:
    (inputs / "a.jsonl").write_bytes(texts("a", "b") + b"broken\n")
    (inputs / "notes.md").write_text("# not an input")
    run()
    return tmp_path / "out"


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x\n"),
    "of other content": lambda path: path.write_text("{}"),
    "with a byte flipped": lambda path: flip(path, 40),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_at_the_end_is_made_again_with_a_warning(
    output: Path, run: Run, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    before = tree(output)
    DAMAGE[damage](output / name)
    caplog.clear()
    result = run()
    assert tree(output) == before
    assert verify(output).good
    assert not result.already_complete
    if (name, damage) != ("manifest.json", "missing"):  # as after any run that died shortly before its end
        warnings = [m for m in caplog.messages if m.endswith("It is made again from the receipts")]
        assert len(warnings) == 1
        assert warnings[0].startswith(f"{output / name} is {'missing' if damage == 'missing' else 'damaged ('}")
    assert run().already_complete


def test_an_edited_number_in_the_manifest_is_noticed(output: Path, run: Run) -> None:
    before = tree(output)
    edit_text(output / "manifest.json", '"documents": 2', '"documents": 3')
    assert run().ledger.documents == 2
    assert tree(output) == before


def test_a_list_of_rejects_that_cannot_be_made_again_is_a_clear_error(output: Path, run: Run) -> None:
    path = output / "units" / "00000.rejects.jsonl"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(OutputError, match=r"00000\.rejects\.jsonl is damaged .*--redo 0"):
        run()
