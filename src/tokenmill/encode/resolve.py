"""From what the user calls a tokenizer to its bytes and the ids that packing needs."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenmill.config import ContentOptions, Eos
from tokenmill.encode.hub import HubError, download, is_hub_id
from tokenmill.errors import TokenizerError
from tokenmill.messages import near, nearest, printable

log = logging.getLogger("tokenmill")

# Name -> the file in tokenmill/data, and the hub id that means the same.
BUNDLED = {"gpt-neox-20b": "EleutherAI/gpt-neox-20b"}

# Names under which tokenizers in the wild keep the token that ends a document or fills a row.
_EOS_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]", "<|eos|>", "<｜end▁of▁sentence｜>")
_PAD_NAMES = ("<|padding|>", "<|pad|>", "<pad>", "[PAD]", "<|finetune_right_pad_id|>")

# What has a model encode the same text differently each time, for training: of BPE, and of Unigram (which the library
# does not read from a file yet).
_RANDOM = ("dropout", "alpha")

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
"""Of an added token."""

MAX_TOKENIZER_BYTES = 512 << 20  # no mutant: far above any tokenizer there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """A tokenizer.json and what was read from it.

    `json` has truncation, padding and whatever is random off, and EOS and BOS special.
    """

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
    unk_id: int | None = None
    """What stands for text that the model does not know, unless it is EOS, BOS or the padding token as well."""
    added: dict[str, int] = field(default_factory=dict)
    """The tokens, special or not, that are found in a text before the model sees it."""
    added_flags: dict[str, tuple[bool, ...]] = field(default_factory=dict)
    """What decides where each of them is found."""
    random: tuple[str, ...] = ()
    """What was random in the file."""

    @property
    def reserved(self) -> dict[int, str]:
        """The special tokens that no text may give, by id: all but the one for what the model does not know."""
        return {i: token for token, i in self.special.items() if i != self.unk_id}

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<u2") if self.vocab_size <= 1 << 16 else np.dtype("<u4")


def resolve_tokenizer(options: ContentOptions) -> Tokenizer:
    """Find and read the tokenizer that the options name."""
    name, data, companion = _find(options.tokenizer)
    tokenizer = read_tokenizer(name, data, eos=options.eos_token, bos=options.bos_token, companion=companion)
    for setting in tokenizer.random:
        log.warning("tokenizer %s: %s would make the output random, so it is switched off", printable(name), setting)
    return tokenizer


def read_tokenizer(
    name: str, data: bytes, *, eos: str | Eos | None, bos: str | None, companion: Mapping[str, Any] | None = None
) -> Tokenizer:
    """A tokenizer from the bytes of its tokenizer.json, and from the tokenizer_config.json that was beside it."""
    model = _parse(name, data)
    random = _switch_off(model)
    ids = _all_ids(name, model)
    added = {t["content"]: t["id"] for t in model["added_tokens"]}
    special = {t["content"]: t["id"] for t in model["added_tokens"] if t.get("special")}
    eos = _eos_token(eos, name, special, model, companion or {})
    for token in filter(None, (eos, bos)):
        if (token_id := _id_of(model, token)) is None:
            hint = nearest(token, special or added) if added else ""
            raise TokenizerError(f"tokenizer {name} has no special token {token!r}{hint}")
        _make_special(model, token, token_id)
        added[token] = special[token] = token_id
    eos_id = special[eos] if eos else None
    bos_id = special[bos] if bos else None
    pad = next((special[p] for p in _PAD_NAMES if p in special), eos_id)
    unk = _unk_id(model)
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
        bos_id=bos_id,
        pad_id=pad if pad is not None else 0,
        unk_id=unk if unk not in (eos_id, bos_id, pad) else None,
        added=added,
        added_flags={t["content"]: tuple(bool(t.get(f)) for f in _FLAGS) for t in model["added_tokens"]},
        random=random,
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
        return _name(path), _tokenizer_json(path), _companion(path)
    if spec.startswith((".", "/")) or spec.endswith((".json", ".model", ".toml")):
        raise TokenizerError(f"tokenizer: there is no file or directory {printable(spec)}")
    hint = "such as EleutherAI/gpt-neox-20b"
    if is_hub_id(spec):
        try:
            path = download(spec)
            return spec, _read(path), _companion(path)
        except HubError as error:
            hint = (
                f"that is in the local hub cache or can be downloaded ({error}). Get its tokenizer.json on a machine "
                "with network access and pass its path: --tokenizer path/to/tokenizer.json"
            )
    meant = near(spec, BUNDLED)
    raise TokenizerError(
        f"tokenizer {printable(spec)!r} is neither a bundled name ({', '.join(BUNDLED)}), nor a tokenizer.json, "
        f"nor a directory with one, nor a hub id {hint}{f'. Did you mean {meant}?' if meant else ''}"
    )


def _name(path: Path) -> str:
    """A name without the place: two machines that keep the file in different folders run the same job."""
    return path.resolve().parent.name if path.name == "tokenizer.json" else path.stem


def _tokenizer_json(path: Path) -> bytes:
    """The file that the user named, if it may be one at all."""
    data = _read(path)
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
        raise TokenizerError(f"{printable(path)} is not a tokenizer.json of Hugging Face tokenizers: it is not JSON")
    return data


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
        companion = path.with_name("tokenizer_config.json")
        found = json.loads(companion.read_bytes()) if companion.is_file() else {}  # a pipe would have us wait
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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
        if not isinstance(model.setdefault("added_tokens", []), list):
            raise TypeError("the added tokens are not an array")
        for token in model["added_tokens"]:
            if not isinstance(token["content"], str) or not isinstance(token["id"], int):
                raise TypeError("an added token has no content or id")
        if not isinstance(model["model"]["vocab"], dict | list):
            raise TypeError("the vocabulary is neither an object nor an array")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TokenizerError(
            f"tokenizer {printable(name)} is not a tokenizer.json of Hugging Face tokenizers: {error!r}"
        ) from error
    return dict(model)


def _switch_off(model: dict[str, Any]) -> tuple[str, ...]:
    """What was saved with the tokenizer for training; which of it was random."""
    # A tokenizer saved with truncation on would cut every document silently.
    model["truncation"] = model["padding"] = None
    inner = model["model"]
    random = tuple(f"{name} {inner[name]}" for name in _RANDOM if inner.get(name))
    for name in _RANDOM:
        if name in inner:
            inner[name] = None
    return random


def _id_of(model: dict[str, Any], token: str) -> int | None:
    """The id of a token, added or of the model."""
    for entry in reversed(model["added_tokens"]):
        if entry["content"] == token:
            return int(entry["id"])
    vocab = model["model"]["vocab"]
    if isinstance(vocab, dict):
        return vocab.get(token)
    return next((i for i, piece in enumerate(vocab) if isinstance(piece, list) and piece[:1] == [token]), None)


def _make_special(model: dict[str, Any], token: str, token_id: int) -> None:
    """Only a special token can be kept out of ordinary text; any other could be forged by a document."""
    entries = [t for t in model["added_tokens"] if t["content"] == token]
    if not entries:
        flags = dict.fromkeys(_FLAGS, False)
        entries = [{"id": token_id, "content": token, **flags}]
        model["added_tokens"] += entries
    for entry in entries:
        entry["special"] = True


def _unk_id(model: dict[str, Any]) -> int | None:
    """What the model gives for what it does not know: Unigram, whose vocabulary is a list, has its id."""
    inner = model["model"]
    if isinstance(inner["vocab"], list):
        unk: int | None = inner.get("unk_id")
        return unk
    token = inner.get("unk_token")
    return _id_of(model, token) if isinstance(token, str) else None


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
    wanted: str | Eos | None, name: str, special: dict[str, int], model: dict[str, Any], companion: Mapping[str, Any]
) -> str | None:
    if wanted is Eos.OFF:
        return None
    return _guess_eos(name, special, model, companion) if wanted is None else wanted


def _guess_eos(name: str, special: dict[str, int], model: dict[str, Any], companion: Mapping[str, Any]) -> str:
    named = companion.get("eos_token")
    if isinstance(named, dict):
        named = named.get("content")
    if named and isinstance(named, str) and _id_of(model, named) is not None:
        return named
    known = [token for token in _EOS_NAMES if token in special]
    if len(known) == 1:
        return known[0]
    candidates = ", ".join(known or special) or "none: the tokenizer has no special token"
    raise TokenizerError(
        f"tokenizer {printable(name)} does not say which token ends a document. Name it with --eos-token, or use "
        f"--no-eos. Candidates: {candidates}"
    )
