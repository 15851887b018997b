"""The kit as a base class for the tests of a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

__all__ = ["GUARD", "BackendSuite"]

GUARD = "kit-is-whole"
"""The name of the test failing if a test of the kit was removed or made powerless."""


class BackendSuite:
    """All tests of the kit for a backend, as a class collected by pytest.

    ::

        from byoc_conformance import BackendSuite

        class TestMyNpu(BackendSuite):
            backend = "mynpu"
            options = {"effort": 2}
            xfail = {"L4-re-entrant": "the driver of SDK 1.2 has one queue; see issue 7"}

    The tests are ``TestMyNpu::L2-op[add]`` and so on, so ``pytest -k "L2 and add"`` chooses among these. The plugin
    creates the tests, not methods of the class: a class can add tests, and cannot replace or drop tests of the kit.
    The tests run in worker processes, out of reach of fixtures.

    Attributes:
        backend: the name of the installed backend. A class without a backend is a base of others, and is not
            collected.
        options: the backend's options.
        companions: backends asked after the backend in every build, for tests of several backends together.
        companion_options: their options, by name.
        examples: random examples for each property; overridden by ``--byoc-examples``.
        seed: of all random numbers; overridden by ``--byoc-seed``.
        patience: the factor on all deadlines; overridden by ``--byoc-patience``.
        xfail: why a test is expected to be broken, by test id, or by a pattern of ids with ``*`` and ``?``. A reason
            has three words or more; a key without a matching test is an error; a listed test without a failure is
            red.
    """

    backend: ClassVar[str] = ""
    options: ClassVar[Mapping[str, Any]] = {}
    companions: ClassVar[Sequence[str]] = ()
    companion_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    examples: ClassVar[int] = 20
    seed: ClassVar[int] = 0
    patience: ClassVar[float] = 1.0
    xfail: ClassVar[Mapping[str, str]] = {}
