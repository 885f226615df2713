"""Where files lie, and what it takes to publish one whole or not at all.

base.py     the protocol
local.py    a disk of this machine
memory.py   this process, for tests of faults
"""
