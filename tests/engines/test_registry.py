"""The registry knows every engine, and nothing else does: not the command line, which must start without them."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import tokenmill
from tests.engines.conftest import EVERY
from tokenmill import engines
from tokenmill.config import ENGINES
from tokenmill.engines.base import Engine
from tokenmill.engines.registry import ENGINE_CLASSES, engine_class

SOURCE = Path(tokenmill.__file__).parent


def test_the_names_are_those_of_the_configuration() -> None:
    assert tuple(ENGINE_CLASSES) == ENGINES


@EVERY
def test_an_engine_is_found_by_its_name(engine: str) -> None:
    found = engine_class(engine)
    assert issubclass(found, Engine)
    assert found.name == engine
    assert found.cost.minimum > 0


def test_every_engine_is_registered() -> None:
    modules = [import_module(f"{engines.__name__}.{module.name}") for module in pkgutil.iter_modules(engines.__path__)]
    made = {kind for m in modules for kind in vars(m).values() if isinstance(kind, type) and issubclass(kind, Engine)}
    assert made - {Engine} == {engine_class(name) for name in ENGINES}


def test_nothing_but_the_registry_the_engines_and_the_configuration_names_an_engine() -> None:
    allowed = [SOURCE / "engines", SOURCE / "config"]
    for path in SOURCE.rglob("*.py"):
        if not any(path.is_relative_to(place) for place in allowed):
            strings = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
            assert strings.isdisjoint(ENGINES), path


def run_python(statement: str) -> tuple[str, set[str]]:
    """What a new process prints, and the modules that it has loaded at its end."""
    program = f"import sys\ntry: {statement}\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return done.stdout, set(done.stderr.split())


def test_help_names_every_engine_and_loads_none() -> None:
    printed, loaded = run_python("from tokenmill.cli import main; sys.exit(main(['run', '--help']))")
    assert all(name in printed for name in ENGINES)
    assert "tokenmill.cli" in loaded
    assert not {name for name in loaded if name == "numpy" or name.startswith("tokenmill.engines")}


def test_only_the_engine_that_is_chosen_is_loaded() -> None:
    _, loaded = run_python("from tokenmill.engines.registry import engine_class; engine_class('streaming')")
    assert loaded & {module for module, _ in ENGINE_CLASSES.values()} == {"tokenmill.engines.streaming"}
