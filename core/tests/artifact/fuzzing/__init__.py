"""A fuzzer of artifacts: mutants are loaded and run.

``corpus`` builds artifacts, ``mutation`` changes artifacts and corrects all digests, ``holes`` keeps the attacks with
success in the past. ``child`` loads, inspects, verifies and runs each mutant in a separate process, on ``guarded``
buffers and under limits; ``parent`` starts these processes and determines the mutant at which a process died.
``sabotage`` breaks byoc on purpose, to prove the detection of faults. ``long_run`` is the command.
"""
