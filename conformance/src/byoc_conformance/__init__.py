"""The conformance kit: proves that a backend keeps what every byoc backend promises.

::

    pip install byoc-conformance
    byoc conformance mynpu --report out/
    pytest --pyargs byoc_conformance --byoc-backend=mynpu
"""

from byoc_conformance.outcome import Cell, Outcome, Status
from byoc_conformance.promise import Item, Level, Promise
from byoc_conformance.promises import all_items, all_promises, find_item
from byoc_conformance.runner import ItemResult, Runner
from byoc_conformance.subject import Subject, SubjectSpec

__all__ = [
    "Cell",
    "Item",
    "ItemResult",
    "Level",
    "Outcome",
    "Promise",
    "Runner",
    "Status",
    "Subject",
    "SubjectSpec",
    "all_items",
    "all_promises",
    "find_item",
]
