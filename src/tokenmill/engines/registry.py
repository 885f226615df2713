"""Which engines there are: the only place that knows where an engine of a given name is.

To add one, write its module, add a line here, and its name to ENGINES in the configuration (a test compares the two).
"""

from __future__ import annotations

from importlib import import_module

from tokenmill.engines.base import Engine

# By module and class, not by import: only the engine that is chosen is loaded.
ENGINE_CLASSES = {
    "enhanced": ("tokenmill.engines.enhanced", "EnhancedEngine"),
    "streaming": ("tokenmill.engines.streaming", "StreamingEngine"),
    "ultra": ("tokenmill.engines.ultra", "UltraEngine"),
    "extreme": ("tokenmill.engines.extreme", "ExtremeEngine"),
}


def engine_class(name: str) -> type[Engine]:
    """engine_class("ultra") -> UltraEngine"""
    module, attribute = ENGINE_CLASSES[name]
    engine: type[Engine] = getattr(import_module(module), attribute)
    return engine
