"""Parts shared by the properties of partition and the neighbouring tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from byoc_core.ir import Binding, Function, IRModule
from hypothesis import strategies as st

from core.tests.partitioning.graphs import Case, grow, plans

Cases = Callable[..., st.SearchStrategy[Case]]


@pytest.fixture(scope="session")
def cases() -> Cases:
    """Random modules of static shapes with claims and patterns of 1 to 4 backends, of up to ``max_size`` ops."""
    return lambda max_size=60: plans(max_size, symbolic=False).map(grow)


class Placement:
    """The region of each op of a partitioned module, read from the names of results.

    Args:
        module: partitioned; names are unique within a function of the original.
    """

    def __init__(self, module: IRModule) -> None:
        self.region_of: dict[str, str] = {}
        self.backend_of: dict[str, str] = {}
        for name, function in module.functions.items():
            if "Codegen" in function.attrs:
                self.backend_of[name] = str(function.attrs["Codegen"])
                self.region_of.update((binding.results[0].name, name) for binding in _members(function))


def _members(function: Function) -> Iterator[Binding]:
    for binding in function.bindings:
        if binding.op.name == "composite":
            yield from _members(binding.regions[0])
        else:
            yield binding


@pytest.fixture(scope="session")
def placement() -> type[Placement]:
    """Return the class mapping each op of a partitioned module to the op's region."""
    return Placement
