"""The way back: token ids become text, for people to look at."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tokenmill.errors import TokenizerError


def _byte_level_alphabet() -> dict[str, int]:
    """The characters that byte-level tokenizers write for bytes: those that can be seen for themselves."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in visible)
    return {chr(byte): byte for byte in visible} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_level_alphabet()


@dataclass(frozen=True, slots=True)
class TokenText:
    """Text that one token gives, or several together where a character is spread over them."""

    text: str
    token_ids: list[int]


class Decoder:
    """Decodes with the tokenizer of an output; `where` names its file in messages."""

    def __init__(self, tokenizer: bytes, where: str) -> None:
        import tokenizers
        from tokenizers.decoders import DecodeStream

        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(tokenizer.decode())
        except Exception as error:  # the library raises plain Exception for whatever is wrong
            raise TokenizerError(f"{where} cannot be loaded: {error}") from error
        self._stream = DecodeStream

    def token(self, token_id: int) -> str:
        """The text of one token by itself."""
        text: str = self._tokenizer.decode([token_id], skip_special_tokens=False)
        return text if "\N{REPLACEMENT CHARACTER}" not in text else self._as_bytes(token_id) or text

    def _as_bytes(self, token_id: int) -> str | None:
        """A token that is not text by itself, with its odd bytes as such: "<CE>"."""
        token = self._tokenizer.id_to_token(token_id) or ""
        if re.fullmatch(r"<0x[0-9A-F]{2}>", token):  # as models with a fallback to bytes write them
            return f"<{token[3:]}"
        if not set(token) <= _BYTE_OF.keys():
            return None
        text = bytes(_BYTE_OF[c] for c in token).decode(errors="surrogateescape")
        return "".join(f"<{ord(c) - 0xDC00:02X}>" if "\udc80" <= c <= "\udcff" else c for c in text)

    def texts(self, token_ids: Iterable[int]) -> list[TokenText]:
        """Token by token; where a character is spread over several, these together."""
        stream = self._stream(skip_special_tokens=False)
        found: list[TokenText] = []
        held: list[int] = []
        for token_id in token_ids:
            held.append(token_id)
            text = stream.step(self._tokenizer, token_id)
            if text is not None:
                found.append(TokenText(text, held))
                held = []
        if held:
            found.append(TokenText("\N{REPLACEMENT CHARACTER}", held))
        return found
