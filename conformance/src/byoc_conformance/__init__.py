"""The conformance kit: proof of the promises common to all byoc backends.

::

    byoc conformance mynpu --report out/
    pytest --pyargs byoc_conformance --byoc-backend=mynpu

or, in a test file of the backend's own::

    from byoc_conformance import BackendSuite

    class TestMyNpu(BackendSuite):
        backend = "mynpu"

Names are imported at first use: pytest imports this package in every run of every project.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_conformance.outcome import Cell, Outcome, Status
    from byoc_conformance.promise import Item, Level, Promise
    from byoc_conformance.promises import all_items, all_promises, find_item
    from byoc_conformance.report import Report
    from byoc_conformance.runner import ItemResult, Runner
    from byoc_conformance.subject import Subject, SubjectSpec
    from byoc_conformance.suite import BackendSuite

__all__ = [
    "BackendSuite",
    "Cell",
    "Item",
    "ItemResult",
    "Level",
    "Outcome",
    "Promise",
    "Report",
    "Runner",
    "Status",
    "Subject",
    "SubjectSpec",
    "all_items",
    "all_promises",
    "find_item",
]

_HOMES = {
    "BackendSuite": "suite",
    "Cell": "outcome",
    "Item": "promise",
    "ItemResult": "runner",
    "Level": "promise",
    "Outcome": "outcome",
    "Promise": "promise",
    "Report": "report",
    "Runner": "runner",
    "Status": "outcome",
    "Subject": "subject",
    "SubjectSpec": "subject",
    "all_items": "promises",
    "all_promises": "promises",
    "find_item": "promises",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
