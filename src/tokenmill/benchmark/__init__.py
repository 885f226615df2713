"""`tokenmill benchmark`: which settings are best on this machine, and how that compares with anything else.

    corpus.py    a generated corpus, where the user names none
    methods.py   encoding alone: one document at a time, batches, three libraries
    limit.py     the CPU time of the bare kernels on the same data: what no engine can beat
    runs.py      whole runs, each in a process of its own, with the memory of its process tree
    peers.py     what people use otherwise, through the scripts in drivers/
    report.py    tables, JSON, the recommendation;  chart.py  the picture

Everything that is timed runs in a process of its own, cold, as a user's job does.
"""
