"""The program as a whole: wrong usage, tracebacks, `python -m tokenmill`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

import tokenmill
from tests.conftest import texts
from tests.support.processes import python
from tokenmill.cli import build_parser, main
from tokenmill.cli.program import COMMANDS, commands_of

USAGE = "usage: tokenmill {run,verify,show,stats,benchmark} ...\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-v"], "there is no option -v; did you mean --version?"),
        (["run"], "no inputs given"),
        (["run", "only-one"], "no output given"),
        (["frobnicate"], "there is no command 'frobnicate'; known: benchmark, run, show, stats, verify"),
        (["rnu", "in", "out"], "there is no command 'rnu'; did you mean 'run'?"),
        (["--quiet", "run", "in", "out"], "--quiet must come after the command"),
        (["run", "in", "out", "--seq-lenght", "3"], "there is no option --seq-lenght; did you mean --seq-len?"),
        (["run", "in", "out", "--seq-lenght=3"], "there is no option --seq-lenght; did you mean --seq-len?"),
        (["run", "in", "out", "--sample", "3"], "there is no option --sample; `tokenmill run --help` lists them"),
        (["show", "out", "--seq-len", "3"], "there is no option --seq-len; `tokenmill show --help` lists them"),
        (["show", "out", "more"], "'more' is one argument too many"),
        (["show", "out", "--sample", "x"], "error: --sample: must be a whole number, not 'x'"),
        (["show", "out", "--row", "9" * 5000], "error: --row: expected row numbers such as 0,17 or 3-5, got '999"),
        (["verify", "out", "--against-source", "9" * 5000], "is neither a number of documents nor all"),
        (["run", "in", "out", "--max-memory", "9" * 5000], "is not a size: write 1000000, 256MiB or 4GB"),
        (["run", "in", "out", "--max-memory", "999TB"], "error: --max-memory: 999.0 TB is more than there is: this m"),
        (["run", "in", "out", "--prefetch-files", "9" * 20], "error: --prefetch-files: must be at most 100,000"),
        (["run", "in", "out", "--max-rejects", "500%"], "--max-rejects: a percentage must be between 0% and 100%, not"),
        (["run", "in", "out", "--seq-len", "0"], "error: --seq-len: must be a whole number of at least 1, not 0"),
        (["run", "in", "out", "--seq-len", "x"], "error: --seq-len: must be a whole number, not 'x'"),
        (["run", "in", "out", "--no-eos", "--eos-token", "x"], "error: --eos-token and --no-eos: they contradict"),
        (["run", "in", "out", "--over"], "there is no option --over; did you mean --overwrite?"),
        (["run", "in", "out", "--tail", "cut"], "error: --tail: there is no choice 'cut'; known: drop, pad"),
        (["run", "in", "out", "--engine", "fast"], "--engine: there is no engine 'fast'; known: auto, enhanced, ext"),
        (["run", "in", "out", "--input-dir", "in"], "use one of them"),
        (["run", "absent", "out"], "there is no file or directory 'absent'"),
        (["run", ".", "out", "--tokenizer", "absent"], "neither a bundled name"),
        (["run", "in", "out", "--tokenizer", "./tok.json"], "tokenizer: there is no file or directory ./tok.json\n"),
        (["run", "in", "out", "--text-field", "Text"], "Did you mean 'text'? The fields are: text. "),
        (["run", "in", "out", "--output-dir", "out"], "out is read as an input, because --output-dir is given: name i"),
        (["run", "in", "out", "--max-memory", "300MB"], "is too little: the smallest engine, streaming, needs 390 MB"),
        (["run", "in", "out", "--config", "absent.toml"], "cannot read the configuration file"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_the_reason(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is written, though there is a document in the folder `in`."""
    (inputs / "a.jsonl").write_bytes(texts("a"))
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    assert code == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert len(shown.err.splitlines()) <= 2, "more than the usage and the error"
    usage = f"usage: tokenmill {arguments[0]} " if arguments[:1] in (["run"], ["show"], ["verify"]) else USAGE
    assert shown.err.startswith((usage, "tokenmill: error: "))
    assert list(tmp_path.iterdir()) == [inputs]


def test_the_program_alone_prints_its_help_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([])
    assert exit_.value.code == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err == build_parser().format_help()


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("command", ["", *(c.__name__.split(".")[-1] for c in COMMANDS)])
def test_help_fits_the_terminal(command: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    parser = commands_of(build_parser())[command] if command else build_parser()
    lines = parser.format_help().splitlines()
    assert max(map(len, lines)) <= columns
    assert "exit codes:" in lines


def test_help_wraps_text_below_its_beginning_and_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = commands_of(build_parser())["verify"].format_help()
    assert "  2    wrong usage, or not a tokenmill\n       output directory" in shown
    assert "  tokenmill verify tokenized/ --against-source 1000\n" in shown


def test_a_traceback_is_shown_with_debug_only(
    inputs: Path,
    tmp_path: Path,
    tiny_tokenizer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["run", str(inputs), str(tmp_path / "out"), "--tokenizer", tiny_tokenizer]
    assert main(command) == main([*command, "--quiet"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main([*command, "--debug"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "in make_plan\n" in said
    assert "tokenmill: error: no input found in" in said

    def fail(*_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("one by none")

    monkeypatch.setattr("tokenmill.job.execute.run", fail)
    assert main(command) == 1
    said = capsys.readouterr().err
    assert (
        "error: ZeroDivisionError: one by none. This is a defect: please report it with the output of --debug" in said
    )
    assert "Traceback" not in said
    assert main([*command, "--debug"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "in fail\n" in said


@pytest.mark.parametrize("command", [c.__name__.split(".")[-1] for c in COMMANDS])
def test_the_help_of_debug_fits_the_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert ("engine was chosen" in " ".join(capsys.readouterr().out.split())) == (command == "run")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]], ids=" ".join)
def test_help_needs_none_of_the_libraries_behind_the_commands(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom tokenmill.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n    print(*sys.modules)"
    )
    done = subprocess.run(python("-c", program, *arguments), capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "tokenmill.config.groups" in loaded
    assert not loaded & {"numpy", "msgspec", "pyarrow", "tokenizers", "fastokens", "rich", "huggingface_hub"}


def test_python_dash_m_is_the_same_program() -> None:
    done = subprocess.run(python("-m", "tokenmill", "--version"), capture_output=True, text=True, check=True)
    assert done.stdout == f"tokenmill {tokenmill.__version__}\n"


@pytest.mark.parametrize("place", ["an empty folder", "nothing", "a file", "an unfinished job"])
def test_every_command_says_the_same_of_what_is_not_an_output(
    job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    output = tmp_path / "out"
    if place == "an empty folder":
        output.mkdir()
    if place == "a file":
        output.write_text("text")
    if place == "an unfinished job":
        assert main(job) == 0
        (output / "manifest.json").unlink()
    capsys.readouterr()
    wanted = f"{output} is not a tokenmill output: it has no job.json and plan.jsonl", 2
    commands = ["verify", "show", "stats"]
    if place == "nothing":
        wanted = f"there is no directory {output}", 2
    if place == "an unfinished job":
        wanted = f"{output} is not complete: it has no manifest.json. Run the job again to continue it", 1
        commands.remove("verify")  # which looks at what there is
    for command in commands:
        code = main([command, str(output)])
        assert (capsys.readouterr().err, code) == (f"tokenmill: error: {wanted[0]}\n", wanted[1])


def test_too_little_memory_is_not_a_defect(
    job: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr("tokenmill.job.execute.resolve_tokenizer", fail)
    assert main(job) == 1
    assert capsys.readouterr().err.startswith("tokenmill: error: there is not enough memory")
