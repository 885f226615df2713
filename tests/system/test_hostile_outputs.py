"""Outputs that somebody wrote into: whatever it was, a command says what is wrong, and never that it is a defect.

`TOKENMILL_TEST_OUTPUTS=2000 pytest tests/system/test_hostile_outputs.py` tries more of them.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xxhash

import tokenmill
from tests.conftest import jsonl, tiny_tokenizer_json
from tests.support.stops import stop_at_checkpoint
from tokenmill.cli import main
from tokenmill.errors import Interrupted, TokenmillError

COUNT = int(os.environ.get("TOKENMILL_TEST_OUTPUTS", "60"))
JSON_FILES = ("job.json", "manifest.json", "plan.jsonl", "units/00000.json", "units/00000.rejects.jsonl")
DELETE, TWICE = "delete it", "once more"
VALUES: list[Any] = [
    DELETE,
    TWICE,
    None,
    -1,
    0,
    1,
    2**40,
    2**70,
    1.5,
    True,
    "",
    "x",
    "a" * 5000,
    "\ud800",
    "\0",
    "../x",
]
VALUES += [[], [1], {}, {"a": 1}]

Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Outputs, one finished and one interrupted, and the command that made them into the folder beside them."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "tiny.json").write_text(json.dumps(tiny_tokenizer_json()))
    (folder / "in").mkdir()
    lines = jsonl(*({"text": f"text {n} " * 9, "id": n} for n in range(30)))
    (folder / "in" / "a.jsonl").write_bytes(lines + b"broken\n")
    (folder / "in" / "b.jsonl").write_bytes(lines)
    options: dict[str, Any] = {"seq_len": 16, "sequences_per_chunk": 40, "id_field": "id", "max_rejects": "50%"}
    known: dict[str, Any] = {"inputs": (str(folder / "in"),), "tokenizer": str(folder / "tiny.json"), **options}
    tokenmill.run(tokenmill.Config(output=folder / "out", engine="streaming", **known))
    (folder / "out").rename(folder / "finished")
    stop = stop_at_checkpoint(folder / "out")
    with pytest.raises(Interrupted):
        tokenmill.run(tokenmill.Config(output=folder / "out", engine="enhanced", batch_size=4, **known), stop=stop)
    (folder / "out").rename(folder / "interrupted")
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    paths = [str(folder / "in"), str(folder / "out")]
    return folder, ["run", *paths, "--tokenizer", known["tokenizer"], "--engine=streaming", *given]


def read_all(output: Path) -> int:
    try:
        rows = tokenmill.open(output)
        for _ in zip(rows, range(1000), strict=False):
            pass
        for _ in rows.documents():
            pass
        return 0
    except TokenmillError as error:
        return error.exit_code


def check(made: tuple[Path, list[str]], kind: str, name: str, data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command, on an output in which this file is something else."""
    folder, job = made
    output = folder / "out"
    commands: list[Callable[[], int]] = [
        lambda: main(["verify", str(output)]),
        lambda: main(["stats", str(output)]),
        lambda: main(["show", str(output), "--row", "0"]),
        lambda: main(["show", str(output), "--file", "a.jsonl", "--record", "12"]),
        lambda: read_all(output),
        lambda: main(job),
    ]
    for command in commands:
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(folder / kind, output)
        (output / name).write_bytes(data)
        code = command()
        said = "".join(capsys.readouterr())
        assert code in (0, 1, 2), said
        for word in ("defect", "Traceback", "report this"):
            assert word not in said


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from places(inner, (*place, key))


def changed(value: Any, place: Place, new: Any) -> Any:
    if not place:
        return new
    value = copy.deepcopy(value)
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    if new == DELETE:
        del inner[place[-1]]
    elif new == TWICE:
        inner.update(more=1) if isinstance(inner, dict) else inner.append(inner[-1])
    else:
        inner[place[-1]] = new
    return value


def written(name: str, value: Any) -> bytes:
    """As tokenmill writes it. A manifest has a checksum that is right, lest all are refused for that."""
    if name.endswith(".jsonl"):
        return json.dumps(value).encode() + b"\n"
    if name == "manifest.json" and isinstance(value, dict):
        body = json.dumps({k: v for k, v in value.items() if k != "xxh3"}, indent=1).removesuffix("\n}")
        return (body + f',\n "xxh3": "{xxhash.xxh3_128_hexdigest(body.encode())}"\n}}\n').encode()
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


@pytest.mark.parametrize("seed", range(COUNT))
def test_json_with_other_keys_and_values_is_damaged_and_not_a_defect(
    made: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    random_ = random.Random(seed)
    name = JSON_FILES[seed % len(JSON_FILES)]
    value = json.loads(
        (made[0] / "finished" / name).read_bytes().splitlines()[0]
        if "jsonl" in name
        else (made[0] / "finished" / name).read_bytes()
    )
    place = random_.choice(list(places(value)))
    check(made, "finished", name, written(name, changed(value, place, random_.choice(VALUES))), capsys)


def mangled(data: bytes, others: list[bytes], random_: random.Random) -> bytes:
    place, size = random_.randrange(len(data) + 1), random_.randrange(1, 20)
    match random_.randrange(6):
        case 0:
            return data[:place]
        case 1:
            return data + random_.randbytes(size)
        case 2:
            return data[:place] + random_.randbytes(1) + data[place + 1 :]
        case 3:
            return data[:place] + random_.choice([b"\xff", b"\0", b"\x7f", b"9"]) * 8 + data[place + 8 :]
        case 4:
            return data[:place] + data[place + size :]
        case _:
            return random_.choice(others)


@pytest.mark.parametrize("kind", ["finished", "interrupted"])
@pytest.mark.parametrize("seed", range(COUNT // 2))
def test_a_file_with_other_bytes_is_damaged_and_not_a_defect(
    made: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str], seed: int, kind: str
) -> None:
    folder = made[0] / kind
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and "logs" not in p.parts)
    assert any("checkpoint" in name for name in names) == (kind == "interrupted")
    random_ = random.Random(seed)
    name = random_.choice(names)
    others = [(folder / other).read_bytes() for other in names]
    check(made, kind, name, mangled((folder / name).read_bytes(), others, random_), capsys)


@pytest.mark.parametrize("suffix", [".npy", ".docs.npy", ".ids.jsonl"])
def test_an_empty_chunk_is_damaged_and_not_a_defect(
    made: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    check(made, "finished", f"chunks/00000-0000{suffix}", b"", capsys)
