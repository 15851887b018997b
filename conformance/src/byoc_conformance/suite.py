"""The kit as a class to inherit from, in the tests of a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

__all__ = ["GUARD", "BackendSuite"]

GUARD = "kit-is-whole"
"""The name of the test that fails where a test of the kit was taken out or made powerless."""


class BackendSuite:
    """All tests of the kit, for one backend, as a class that pytest collects.

    ::

        from byoc_conformance import BackendSuite

        class TestMyNpu(BackendSuite):
            backend = "mynpu"
            options = {"effort": 2}
            xfail = {"L4-re-entrant": "the driver of SDK 1.2 has one queue; see issue 7"}

    The tests are ``TestMyNpu::L2-op[add]`` and so on, so ``pytest -k "L2 and add"`` chooses among them. They are made
    by the plugin, not by methods: a class can add tests of its own, and can neither replace nor drop one of the kit.
    They run in worker processes, which fixtures do not reach.

    Attributes:
        backend: the name of the installed backend. A class without one is a base of others, and is not collected.
        options: its options.
        companions: backends that are asked after it in every build, for tests of several together.
        companion_options: their options, by name.
        examples: random examples for each property; ``--byoc-examples`` goes before it.
        seed: of all random numbers; ``--byoc-seed`` goes before it.
        patience: all deadlines are longer by this factor; ``--byoc-patience`` goes before it.
        xfail: why a test is expected to be broken, by its id, or by a pattern of ids with ``*`` and ``?``. A reason
            has three words or more; a key that names no test is an error; a test that is not broken though it stands
            here is red.
    """

    backend: ClassVar[str] = ""
    options: ClassVar[Mapping[str, Any]] = {}
    companions: ClassVar[Sequence[str]] = ()
    companion_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    examples: ClassVar[int] = 20
    seed: ClassVar[int] = 0
    patience: ClassVar[float] = 1.0
    xfail: ClassVar[Mapping[str, str]] = {}
