"""A job between its plan and its run: what tokenmill.run does in one go, taken apart.

Here inputs can change after they were planned, fail while they are read, and the output can be any storage.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from tokenmill.config import Config
from tokenmill.encode import Encoder, Tokenizer, build_encoder, resolve_tokenizer
from tokenmill.job.execute import Display, RunResult, run_planned
from tokenmill.output.open import output_storage
from tokenmill.plan.make import Planned, make_plan
from tokenmill.read.corpus import Corpus
from tokenmill.storage.base import Reading, Storage
from tokenmill.storage.memory import MemoryStorage


@dataclass(frozen=True)
class PreparedJob:
    """A job that was planned. It can be run as often as needed."""

    config: Config
    planned: Planned
    tokenizer: Tokenizer
    loading: Future[Encoder]

    def run(
        self,
        storage: Storage | None = None,
        *,
        inputs: Reading | None = None,
        stop: threading.Event | None = None,
        display: Display | None = None,
        **options: Any,
    ) -> RunResult:
        """Run it into this storage, over inputs as they are seen through this one; options may be changed."""
        config = replace(self.config, **options)
        planned = replace(self.planned, inputs=inputs or self.planned.inputs)
        storage = storage or output_storage(config.output)
        return run_planned(config, planned, storage, self.tokenizer, self.loading, stop=stop, display=display)


def prepare(config: Config) -> PreparedJob:
    tokenizer = resolve_tokenizer(config)
    loading: Future[Encoder] = Future()
    loading.set_result(build_encoder(tokenizer, config.encoder, config.special_tokens_in_text))
    return PreparedJob(config, make_plan(config.inputs, config.output, Corpus), tokenizer, loading)


def tree_of(storage: MemoryStorage) -> dict[str, bytes]:
    """Every file of an output in memory with its content, drafts too: as `tests.conftest.tree` gives a directory's."""
    drafts = {f"tmp/{name}": storage.open_draft(name).read() for name, _ in storage.drafts()}
    return {name: data for name, data in storage.files().items() if not name.startswith("logs/")} | drafts
