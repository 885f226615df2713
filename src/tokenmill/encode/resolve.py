"""From what the user calls a tokenizer to its bytes and the ids that packing needs."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenmill.config import ContentOptions, Eos
from tokenmill.errors import TokenizerError
from tokenmill.messages import nearest, printable

# Name -> the file in tokenmill/data, and the hub id that means the same.
BUNDLED = {"gpt-neox-20b": "EleutherAI/gpt-neox-20b"}

# Names under which tokenizers in the wild keep the token that ends a document or fills a row.
_EOS_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]", "<|eos|>", "<｜end▁of▁sentence｜>")
_PAD_NAMES = ("<|padding|>", "<|pad|>", "<pad>", "[PAD]", "<|finetune_right_pad_id|>")

MAX_TOKENIZER_BYTES = 512 << 20  # no mutant: far above any tokenizer there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """A tokenizer.json and what was read from it. `json` has truncation and padding off and EOS and BOS special."""

    name: str
    data: bytes
    """The file as it was found."""
    sha256: str
    json: str
    vocab_size: int
    special: dict[str, int]
    eos_token: str | None
    eos_id: int | None
    bos_token: str | None
    bos_id: int | None
    pad_id: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<u2") if self.vocab_size <= 1 << 16 else np.dtype("<u4")


def resolve_tokenizer(options: ContentOptions) -> Tokenizer:
    """Find and read the tokenizer that the options name."""
    name, data, companion = _find(options.tokenizer)
    return read_tokenizer(name, data, eos=options.eos_token, bos=options.bos_token, companion=companion)


def read_tokenizer(
    name: str, data: bytes, *, eos: str | Eos | None, bos: str | None, companion: Mapping[str, Any] | None = None
) -> Tokenizer:
    """A tokenizer from the bytes of its tokenizer.json, and from the tokenizer_config.json that was beside it."""
    model = _parse(name, data)
    added = {t["content"]: t for t in model["added_tokens"]}
    ids = _all_ids(name, model)
    special = {content: t["id"] for content, t in added.items() if t.get("special")}
    eos = _eos_token(eos, name, special, companion or {})
    for token in filter(None, (eos, bos)):
        if token not in added:
            hint = nearest(token, special or added) if added else ""
            raise TokenizerError(f"tokenizer {name} has no special token {token!r}{hint}")
        # Only a special token can be kept out of ordinary text; any other could be forged by a document.
        added[token]["special"] = True
        special[token] = added[token]["id"]
    eos_id = special[eos] if eos else None
    pad = next((special[p] for p in _PAD_NAMES if p in special), eos_id if eos_id is not None else 0)
    return Tokenizer(
        name=name,
        data=data,
        sha256=hashlib.sha256(data).hexdigest(),
        json=_encode(model),
        vocab_size=max(ids) + 1,
        special=special,
        eos_token=eos,
        eos_id=eos_id,
        bos_token=bos,
        bos_id=special[bos] if bos else None,
        pad_id=pad,
    )


def _find(spec: str) -> tuple[str, bytes, dict[str, Any]]:
    """Name, bytes of tokenizer.json, and the tokenizer_config.json beside it if there is one."""
    bundled = next((k for k, hub in BUNDLED.items() if spec in (k, hub)), None)
    path = Path(spec)
    if bundled and not path.exists():
        return bundled, resources.files("tokenmill").joinpath(f"data/{bundled}.json").read_bytes(), {}
    if path.is_dir():
        path = path / "tokenizer.json"
        if not path.is_file():
            raise TokenizerError(f"the directory {printable(spec)} has no tokenizer.json")
    if path.is_file():
        return _name(path), _read(path), _companion(path)
    if spec.count("/") == 1 and not spec.startswith((".", "/", "~")) and not spec.endswith(".json"):
        path = _download(spec)
        return spec, _read(path), _companion(path)
    raise TokenizerError(
        f"tokenizer {printable(spec)!r} is neither a bundled name ({', '.join(BUNDLED)}), nor a tokenizer.json, "
        "nor a directory with one, nor a hub id such as EleutherAI/gpt-neox-20b"
    )


def _name(path: Path) -> str:
    """A name without the place: two machines that keep the file in different folders run the same job."""
    return path.resolve().parent.name if path.name == "tokenizer.json" else path.stem


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_TOKENIZER_BYTES:
            raise TokenizerError(
                f"{printable(path)} is larger than {MAX_TOKENIZER_BYTES >> 20} MiB: it is not a tokenizer"
            )
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"cannot read the tokenizer {printable(path)}: {error.strerror}") from error


def _companion(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.with_name("tokenizer_config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _download(repo: str) -> Path:
    import huggingface_hub

    try:
        path = huggingface_hub.hf_hub_download(repo, "tokenizer.json")
    except Exception as error:
        raise TokenizerError(
            f"tokenizer {printable(repo)} is not in the local hub cache and cannot be downloaded "
            f"({type(error).__name__}). Get its tokenizer.json on a machine with network access and pass its "
            "path: --tokenizer path/to/tokenizer.json"
        ) from error
    # It names EOS, and the cache keeps it beside the tokenizer. Many repositories have none.
    with contextlib.suppress(Exception):
        huggingface_hub.hf_hub_download(repo, "tokenizer_config.json")
    return Path(path)


def _decode(data: bytes) -> Any:
    """Five times as fast as json, which is asked when this fails: it accepts more, lone surrogates for example."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return json.loads(data)


def _encode(model: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(model).decode()
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return json.dumps(model)


def _parse(name: str, data: bytes) -> dict[str, Any]:
    try:
        model = _decode(data)
        added = model.setdefault("added_tokens", [])
        for token in added:
            if not isinstance(token["content"], str) or not isinstance(token["id"], int):
                raise TypeError("an added token has no content or id")
        model["model"]["vocab"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TokenizerError(
            f"tokenizer {printable(name)} is not a tokenizer.json of Hugging Face tokenizers: {error!r}"
        ) from error
    # A tokenizer saved with truncation on would cut every document silently.
    model["truncation"] = model["padding"] = None
    return dict(model)


def _all_ids(name: str, model: dict[str, Any]) -> list[int]:
    vocab = model["model"]["vocab"]
    ids = list(vocab.values()) if isinstance(vocab, dict) else list(range(len(vocab)))
    added = {t["content"]: t["id"] for t in model["added_tokens"]}
    # An added token may be in the vocabulary, too; but no two tokens may have the same id.
    new = [i for content, i in added.items() if not (isinstance(vocab, dict) and vocab.get(content) == i)]
    new = new if isinstance(vocab, dict) else [i for i in new if i >= len(ids)]
    ids += new
    if not ids or not all(isinstance(i, int) and 0 <= i < 1 << 32 for i in ids):
        raise TokenizerError(f"tokenizer {printable(name)} has an empty vocabulary or ids that are not 32-bit numbers")
    if len(set(ids)) < len(ids):
        twice = next(i for i, count in Counter(ids).items() if count > 1)
        raise TokenizerError(f"tokenizer {printable(name)} gives the id {twice} to more than one token")
    return ids


def _eos_token(
    wanted: str | Eos | None, name: str, special: dict[str, int], companion: Mapping[str, Any]
) -> str | None:
    if wanted is Eos.OFF:
        return None
    return _guess_eos(name, special, companion) if wanted is None else wanted


def _guess_eos(name: str, special: dict[str, int], companion: Mapping[str, Any]) -> str:
    named = companion.get("eos_token")
    if isinstance(named, dict):
        named = named.get("content")
    if isinstance(named, str) and named in special:
        return named
    known = [token for token in _EOS_NAMES if token in special]
    if len(known) == 1:
        return known[0]
    candidates = ", ".join(known or special) or "none: the tokenizer has no special token"
    raise TokenizerError(
        f"tokenizer {printable(name)} does not say which token ends a document. Name it with --eos-token, or use "
        f"--no-eos. Candidates: {candidates}"
    )
