"""``byoc_schedules``: permitted answers and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from byoc_core import script as R
from byoc_core.backend.registry import backends
from byoc_core.errors import HookError

from core.tests.conftest import FakeBackend

pytestmark = pytest.mark.asks_for_plugins

MODULE = R.parse("""
def main(x: R.Tensor((2, 4))):
    y = R.nn.relu(x)
    return y
""")


def asked(answer: Any) -> Mapping[str, tuple[str, ...]]:
    handle = backends().get(FakeBackend("npu", schedules=lambda _function: answer))
    return handle.schedules(MODULE["main"], handle.context())


def test_names_are_returned_once_in_order() -> None:
    assert asked({"y": ["b", "a", "b"]}) == {"y": ("b", "a")}
    assert asked({"y": ()}) == {"y": ()}
    assert asked({}) == {}


def test_a_backend_without_the_hook_has_none() -> None:
    class Bare:
        byoc_backend_info = FakeBackend("npu").byoc_backend_info
        byoc_codegen = FakeBackend("npu").byoc_codegen

    handle = backends().get(Bare())
    assert handle.schedules(MODULE["main"], handle.context()) == {}


@pytest.mark.parametrize(
    "answer", [3, None, ["a"], {"y": 8}, {"y": [8]}, {"y": [None]}, {"x": ["a"]}, {"other": ["a"]}, {3: ["a"]}]
)
def test_other_answers_are_errors(answer: Any) -> None:
    with pytest.raises(HookError, match="plugin `npu`, hook `byoc_schedules`: returned"):
        asked(answer)
