"""Looking into a finished output: rows and counts."""
