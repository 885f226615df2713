"""Two encoders with one result: fastokens for speed, Hugging Face tokenizers as the reference and the fallback."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, Protocol, TypeVar

import numpy as np
import xxhash

from tokenmill.config import EncoderChoice, SpecialTokens
from tokenmill.encode.admit import admit
from tokenmill.encode.resolve import Tokenizer
from tokenmill.encode.torture import torture_set
from tokenmill.errors import TokenizerError
from tokenmill.records import TokenBatch

log = logging.getLogger("tokenmill")

# XXH3-128 of a tokenizer.json -> of the torture set and what the reference makes of it as plain text. For these the
# reference need not be loaded, which takes as long as loading fastokens; a test compares it with the reference.
KNOWN = {"425fcbdd497e2cb94fdbe112b8b68f91": "68271e9cc88b2de132df82ea6b5b69b4"}


class Encoder(Protocol):
    """Encodes documents, each by itself: how they are batched never shows in the ids."""

    name: str

    def encode(self, texts: Sequence[str]) -> TokenBatch: ...


E = TypeVar("E", bound=Encoder)


def _raise_clearly(error: BaseException, tokenizer: Tokenizer, what: str) -> NoReturn:
    """Whatever a library raises is an error of the tokenizer, even a panic of Rust, which is not an Exception."""
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        raise TokenizerError(f"tokenizer {tokenizer.name} {what}: {error}") from error
    raise error


class FastokensEncoder:
    """fastokens: ids and offsets come back as two buffers, nothing per token is a Python object."""

    name = "fastokens"

    def __init__(self, tokenizer: Tokenizer, *, plain: bool) -> None:
        # Measured: two threads of its own gain 1.2x at best and cost memory; parallelism belongs to the engine.
        os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")  # no mutant: only speed depends on it
        import fastokens

        self._plain = plain
        self._tokenizer = tokenizer
        self._library = fastokens.Tokenizer.from_json_str(tokenizer.json)

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        try:
            ids, offsets = self._library.encode_batch_flat(list(texts), split_special_tokens=self._plain)
        except BaseException as error:
            _raise_clearly(error, self._tokenizer, "cannot encode text")
        return TokenBatch(np.frombuffer(ids, "<u4"), np.frombuffer(offsets, "<u8").astype(np.int64))


class HuggingFaceEncoder:
    """Hugging Face tokenizers: what every other encoder must agree with. Some thirty times slower."""

    name = "huggingface"

    def __init__(self, tokenizer: Tokenizer, *, plain: bool) -> None:
        import tokenizers

        self._tokenizer = tokenizer
        self.library = tokenizers.Tokenizer.from_str(tokenizer.json)
        self.library.encode_special_tokens = plain

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        try:
            lists = [e.ids for e in self.library.encode_batch_fast(list(texts), add_special_tokens=False)]
        except BaseException as error:
            _raise_clearly(error, self._tokenizer, "cannot encode text")
        offsets = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(ids) for ids in lists], out=offsets[1:])
        flat = np.fromiter((i for ids in lists for i in ids), np.uint32, int(offsets[-1]))
        return TokenBatch(flat, offsets)


def build_encoder(tokenizer: Tokenizer, choice: EncoderChoice, mode: SpecialTokens) -> Encoder:
    """The encoder to use: fastokens if it loads this tokenizer and agrees with the reference, else the reference."""
    plain = mode is not SpecialTokens.MATCH
    if plain and choice is not EncoderChoice.HUGGINGFACE and (known := _known_good(tokenizer)) is not None:
        return known
    with ThreadPoolExecutor(1) as loader:  # no mutant: one task is given to it
        # fastokens takes three times as long to load, and lets others work meanwhile.
        wanted = choice is not EncoderChoice.HUGGINGFACE
        loading = loader.submit(_load, FastokensEncoder, tokenizer, plain) if wanted else None
        reference = _load(HuggingFaceEncoder, tokenizer, plain)
        texts = torture_set(tokenizer)
        expected = reference.encode(texts)
        check_ids(expected, tokenizer)
    admit(tokenizer, mode, reference.library, texts, expected)
    if loading is None:
        return reference
    try:
        fast = loading.result()
        problem = _disagreement(fast.encode(texts), expected, texts)
    except Exception as error:
        # Whatever fastokens raises for a tokenizer that it does not know, the reference still serves.
        problem = f"fastokens refuses it: {error.__cause__ or error}"
    if problem is None:
        return fast
    if choice is EncoderChoice.FASTOKENS:
        raise TokenizerError(f"tokenizer {tokenizer.name}: {problem}. Use --encoder auto or huggingface")
    log.warning(
        "tokenizer %s: %s. Using Hugging Face tokenizers, which is right but some 30 times slower",
        tokenizer.name,
        problem,
    )
    return reference


def _known_good(tokenizer: Tokenizer) -> Encoder | None:
    """fastokens, if what the reference would say is known and it says the same."""
    wanted = KNOWN.get(xxhash.xxh3_128_hexdigest(tokenizer.json.encode("utf-8", "surrogatepass")))
    if wanted is None:
        return None
    texts = torture_set(tokenizer)
    try:
        fast = FastokensEncoder(tokenizer, plain=True)
        return fast if digest_of(texts, fast.encode(texts)) == wanted else None
    except Exception:
        return None  # whatever it is, comparing with the reference will tell


def digest_of(texts: list[str], batch: TokenBatch) -> str:
    """XXH3-128 of texts and their ids."""
    state = xxhash.xxh3_128("\0".join(texts).encode())
    state.update(batch.token_ids.astype("<u4").tobytes())
    state.update(batch.offsets.astype("<i8").tobytes())
    return state.hexdigest()


def load_encoder(tokenizer: Tokenizer, name: str, mode: SpecialTokens) -> Encoder:
    """The encoder of this name, in a process that need not check again what another one has checked."""
    kind: Callable[..., Encoder] = {k.name: k for k in (FastokensEncoder, HuggingFaceEncoder)}[name]
    return _load(kind, tokenizer, mode is not SpecialTokens.MATCH)


def _load(kind: Callable[..., E], tokenizer: Tokenizer, plain: bool) -> E:
    try:
        return kind(tokenizer, plain=plain)
    except BaseException as error:
        _raise_clearly(error, tokenizer, "cannot be loaded")


def check_ids(batch: TokenBatch, tokenizer: Tokenizer) -> None:
    """Ids at or above the vocabulary size would wrap around in the output type: never write one."""
    if len(batch.token_ids) and (highest := int(batch.token_ids.max())) >= tokenizer.vocab_size:
        raise TokenizerError(
            f"tokenizer {tokenizer.name} gave id {highest}, but its vocabulary ends at {tokenizer.vocab_size - 1}"
        )


def _disagreement(got: TokenBatch, expected: TokenBatch, texts: list[str]) -> str | None:
    for i, text in enumerate(texts):
        a = got.token_ids[got.offsets[i] : got.offsets[i + 1]]
        b = expected.token_ids[expected.offsets[i] : expected.offsets[i + 1]]
        if not np.array_equal(a, b):
            return f"fastokens and the reference disagree on {text[:40]!r}"
    return None
