"""Names expected by users in the wrong module, or under the name of another system."""

from __future__ import annotations

from importlib import import_module

import byoc_core
import byoc_core.partitioning
import byoc_core.transform
import pytest
from byoc_core.absent_names import HOMES

MODULES = {
    "byoc_core": byoc_core,
    "byoc_core.partitioning": byoc_core.partitioning,
    "byoc_core.transform": byoc_core.transform,
}


@pytest.mark.parametrize("name", HOMES)
def test_a_name_is_where_the_error_says(name: str) -> None:
    home, _, own_name = HOMES[name].rpartition(".")
    assert hasattr(import_module(home), own_name)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("name", HOMES)
def test_each_name_is_found_or_told(module: str, name: str) -> None:
    if hasattr(MODULES[module], name):
        return
    home, _, own_name = HOMES[name].rpartition(".")
    with pytest.raises(AttributeError) as caught:
        getattr(MODULES[module], name)
    said = "The name is in another module" if own_name == name else f"The name in byoc is `{own_name}`"
    assert str(caught.value) == (
        f"module {module!r} has no attribute {name!r}. {said}: `from {home} import {own_name}`."
    )
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        (byoc_core, "biuld", ". Did you mean 'build'?"),
        (byoc_core, "no_such_name", ""),
        (byoc_core, "__no_such__", ""),
        (byoc_core.partitioning, "FuseOpsByPatern", ". Did you mean 'FuseOpsByPattern'?"),
        (byoc_core.transform, "FuseTIR", ""),
    ],
)
def test_other_names(module: object, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert str(caught.value).endswith(f"has no attribute {name!r}{hint}")
