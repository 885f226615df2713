"""Tokenizers on the Hugging Face hub, found and kept by its own library."""

from __future__ import annotations

import contextlib
from pathlib import Path


class HubError(Exception):
    """A tokenizer is not in the local cache and could not be downloaded; says why in a word."""


def is_hub_id(spec: str) -> bool:
    """Whether this may be on the hub: "owner/name", or a name alone such as "gpt2"."""
    if spec.endswith(".json"):
        return False
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError

    try:
        huggingface_hub.hf_hub_url(spec, "tokenizer.json")  # only the hub's library knows what an id may look like
    except HFValidationError:
        return False
    return True


def download(repo: str) -> Path:
    """The newest tokenizer.json, with its tokenizer_config.json beside it; without a network, what the cache has."""
    import huggingface_hub

    problem = _unreachable(repo)
    cached_only = problem is not None
    try:
        path = huggingface_hub.hf_hub_download(repo, "tokenizer.json", local_files_only=cached_only)
    except Exception as error:
        raise HubError(type(problem or error).__name__) from error
    # It names EOS, and the cache keeps it beside the tokenizer. Many repositories have none.
    with contextlib.suppress(Exception):
        huggingface_hub.hf_hub_download(repo, "tokenizer_config.json", local_files_only=cached_only)
    return Path(path)


def _unreachable(repo: str) -> Exception | None:
    """Why the hub does not give the file, asked once: a download asks six times in 23 seconds, and warns each time."""
    import huggingface_hub

    try:
        huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(repo, "tokenizer.json"))
    except Exception as error:
        return error
    return None
