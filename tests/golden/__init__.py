"""The golden corpus: every hard case there is, the jobs over it, and the digests of all that they write.

make_corpus.py   wrote corpus/ and texts.json (what must come out of each file); kept to say what is in there
corpus/          the inputs, committed: another version of a compressor would write other bytes
jobs.py          the jobs
digests.json     job -> file of its output -> XXH3-128
output/          an output of format version 1, which must stay readable
record.py        `make golden`: writes digests.json again; the diff shows what changed on purpose
"""
