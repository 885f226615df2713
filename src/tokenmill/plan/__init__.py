"""Stage 1, plan: what the user named becomes a list of files, and the files become units.

arguments ─find─> names below one root ─inspect─> InputFile (format, codec, fingerprint) ─cut─> Unit…
"""
