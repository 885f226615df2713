"""`tokenmill verify`: is a finished output whole, and is it what its sources say?

    metadata.py cross-checks job, plan, receipts, manifest, rejects and ledger
    chunks.py   every chunk: shape, type, checksum, ids, where documents end
    source.py   documents against the records they came from, through the reference tokenizer
    verify.py   all of it, in order, with a verdict

Nothing is written. Every problem says what is wrong, where, and which unit to do again.
"""
