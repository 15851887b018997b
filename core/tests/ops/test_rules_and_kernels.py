"""Every op's type rule against the kernel, with known and with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from byoc_core.ops import default_ops
from hypothesis import given, settings
from hypothesis import strategies as st

Case = tuple[list[tuple[tuple[int, ...], str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

# The results of the others have sizes that only running tells; their rules are compared in a file of their own.
_NAMES = sorted(name for name, op in default_ops().items() if op.kernel is not None and not op.declares_results)


@pytest.mark.parametrize("name", _NAMES)
@settings(max_examples=settings().max_examples // 5, deadline=None)
@given(data=st.data())
def test_rule_promises_what_the_kernel_gives(
    name: str,
    check_rule: Callable[[str, Case, Draw], None],
    rule_cases: dict[str, Callable[[Draw], Case]],
    data: st.DataObject,
) -> None:
    check_rule(name, rule_cases[name](data.draw), data.draw)
