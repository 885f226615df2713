"""Which engines there are."""

from __future__ import annotations

from importlib import import_module

from tokenmill.engines.base import Engine


def get_engine(name: str) -> Engine:
    """The class NAMEEngine of the module of that name, imported when it is chosen."""
    engine: Engine = getattr(import_module(f"tokenmill.engines.{name}"), f"{name.capitalize()}Engine")()
    return engine
