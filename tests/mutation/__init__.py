"""`make mutants`: change the code on purpose, one small change at a time, and see whether a test notices.

    generate.py   a module's source -> its mutants, one changed expression or statement each
    cover.py      which tests reach which line, and how long each takes
    execute.py    a mutant -> killed, survived or timed out, in a fork that runs the tests that reach its line
    bugs.py       bugs.json: realistic bugs made by hand, each with the test that must fail with it
    __main__.py   all of it, in parallel, resumable; prints the score by module and every survivor

Why not a library: mutmut 3.8 fails with pytest 9.2 and leaves out decorated functions and constants; cosmic-ray starts
a whole pytest for every mutant and cannot choose its tests.
"""
