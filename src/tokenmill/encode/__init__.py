"""Stage 3, encode: texts become flat token ids.

--tokenizer ─resolve─> Tokenizer (json, special ids) ─build_encoder─> Encoder.encode(texts) -> TokenBatch
"""

from tokenmill.encode.encoder import Encoder, build_encoder, load_encoder
from tokenmill.encode.resolve import Tokenizer, resolve_tokenizer

__all__ = ["Encoder", "Tokenizer", "build_encoder", "load_encoder", "resolve_tokenizer"]
