"""Stage 5, write: rows, sidecars and rejects become files."""
