"""A fuzzer of artifacts that runs what it changes.

``corpus`` builds artifacts, ``mutation`` changes them and makes all digests right again, ``holes`` keeps the attacks
that once worked. ``child`` loads, inspects, verifies and runs each mutant in a process of its own, on ``guarded``
buffers and under limits; ``parent`` starts such processes and finds out which mutant a process died of. ``sabotage``
breaks byoc on purpose, to show that faults are found. ``long_run`` is the command.
"""
