"""Modules in front of other modules: every request reaches the inner module."""

from __future__ import annotations

from byoc_core.runtime.delegating import DelegatingModule
from byoc_core.runtime.module import RuntimeModule


def test_every_member_with_a_default_is_passed_on() -> None:
    members = {name for name in vars(RuntimeModule) if not name.startswith("_")}
    passed_on = members & vars(DelegatingModule).keys()
    assert {"call_traits", "call_steps", "find_signature"} <= passed_on
    # Subclasses change the calls; by default, functions with constants are these functions.
    assert members - passed_on == {"find_function", "find_for_constants", "get_function"}
