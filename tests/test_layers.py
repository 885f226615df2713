"""Imports point one way: every module may import what lies below it, never what lies above or beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tokenmill

PACKAGE = Path(tokenmill.__file__).parent

# From the bottom up. Folders and modules of one line know nothing of each other. The longest name decides: what an
# output looks like is below the stages, how one is committed and opened is above them.
LAYERS = (
    ("errors",),
    ("messages",),
    ("records",),
    ("config", "storage"),
    ("output.layout", "output.schema"),
    ("read", "encode", "concat", "write"),
    ("output",),
    ("plan",),
    ("unit",),
    ("engines",),
    ("job",),
    ("load",),
    ("inspect", "check"),
    ("benchmark",),
    ("cli",),
    ("__main__", "__init__"),
)
NAMES = {name: height for height, layer in enumerate(LAYERS) for name in layer}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if "drivers" not in path.parts:  # scripts for other environments
            parts = path.relative_to(PACKAGE).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts), path


MODULES = dict(modules())


def place(module: str) -> str:
    """The folder or module of LAYERS that a module belongs to: "output.schema", "read"."""
    fitting = [name for name in NAMES if module == name or module.startswith(f"{name}.")]
    assert fitting, f"{module} is in no layer: add it to LAYERS"
    return max(fitting, key=len)


def imported(path: Path) -> Iterator[str]:
    """The modules of this package that a module imports, inside functions, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tokenmill"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}".removeprefix("tokenmill").lstrip(".")
                yield whole if whole in MODULES else node.module.removeprefix("tokenmill").lstrip(".")
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("tokenmill").lstrip(".") for a in node.names if "tokenmill" in a.name)


@pytest.mark.parametrize("module", [m for m in MODULES if m not in ("__init__", "__main__")])
def test_a_module_imports_only_what_lies_below_it(module: str) -> None:
    own = place(module)
    for other in set(imported(MODULES[module])):
        theirs = place(other) if other else "__init__"
        if theirs != own:
            below = NAMES[theirs] < NAMES[own]
            # The version is all that the command line wants of the package itself.
            assert below or (theirs == "__init__" and own in ("cli", "benchmark")), f"{module} imports {other}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    left = {module: set(imported(path)) - {""} for module, path in MODULES.items()}
    while free := [module for module, others in left.items() if not others & (left.keys() - {module})]:
        for module in free:
            del left[module]
    assert not left, f"in a circle: {sorted(left)}"


@pytest.mark.parametrize("module", [m for m, path in MODULES.items() if path.name == "__init__.py" and m != "__init__"])
def test_a_folder_is_opened_by_its_docstring_and_names_from_its_modules(module: str) -> None:
    """Nothing is defined in an __init__.py: whoever looks for code finds it in a module with a name."""
    body = ast.parse(MODULES[module].read_text()).body
    assert isinstance(body[0], ast.Expr), "it begins with a docstring"
    for node in body[1:]:
        is_all = isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["__all__"]
        assert isinstance(node, ast.ImportFrom) or is_all, f"line {node.lineno}"


def test_the_root_holds_a_handful_of_modules() -> None:
    assert {m for m in MODULES if "." not in m and MODULES[m].name != "__init__.py"} == {
        "__main__",
        "concat",
        "errors",
        "messages",
        "records",
    }
