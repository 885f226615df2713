"""The way back: token ids become text, for people to look at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenmill.errors import TokenizerError


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
        return text

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
