"""Deprecated names of claim filters and of the report: the old names work, with a warning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest
from byoc_core import script as R
from byoc_core.ir import Binding
from byoc_core.partitioning import (
    AnnotateSupported,
    FuseOpsByPattern,
    PartitionLog,
    PartitionRequest,
    build_report,
    partition,
)
from byoc_core.pattern import Rejection

from core.tests.conftest import FakeBackend

MODULE = """
def main(x: R.Tensor((4,), "float32")):
    a = R.tanh(x)
    return a
"""


def refuse(source: str, binding: Binding) -> Rejection | None:
    return Rejection("tanh", "no tanh") if binding.op.name == "tanh" else None


def refuse_all(backend: str) -> Callable[[str, Binding], Rejection | None]:
    return refuse


def warned(use: Callable[[], Any], old: str, new: str) -> Any:
    """Return the value of a use of an old name, after a check of the warning."""
    with pytest.warns(DeprecationWarning, match="is deprecated since") as caught:
        value = use()
    text = f"`{old}` is deprecated since byoc-core 0.2 and will be removed in 0.4: use `{new}`."
    assert [str(warning.message) for warning in caught] == [text]
    return value


def test_passes_take_the_old_keyword(fake_backend: type[FakeBackend]) -> None:
    passes: list[tuple[Any, object]] = [(AnnotateSupported, fake_backend("aone", None)), (FuseOpsByPattern, [])]
    for make, argument in passes:
        name = make.__name__
        old = warned(partial(make, argument, admit=refuse), f"{name}(admit=...)", f"{name}(claim_filter=...)")
        assert old == make(argument, claim_filter=refuse)
        assert warned(partial(getattr, old, "admit"), f"{name}.admit", f"{name}.claim_filter") is refuse
        assert replace(old).claim_filter is refuse


def test_a_request_has_the_old_names(fake_backend: type[FakeBackend]) -> None:
    module, log = R.parse(MODULE), PartitionLog()
    request: Any = PartitionRequest([], log=log)
    keyword = ("PartitionRequest(admissions=...)", "PartitionRequest(claim_filters=...)")
    request = warned(partial(replace, request, admissions=refuse_all), *keyword)
    assert request.claim_filters is refuse_all
    field = ("PartitionRequest.admissions", "PartitionRequest.claim_filters")
    assert warned(lambda: request.admissions, *field) is refuse_all

    def old_policy(module: Any, request: Any) -> Any:
        (backend,) = request.backends
        method = ("PartitionRequest.admission", "PartitionRequest.claim_filter")
        assert warned(lambda: request.admission(backend), *method)("main", module["main"].bindings[0]) is None
        keyword = ("PartitionRequest.claim(admit=...)", "PartitionRequest.claim(claim_filter=...)")
        return warned(lambda: request.claim(module, backend, admit=refuse), *keyword)

    partition(module, [fake_backend("aone", None)], policy=old_policy, log=log)
    assert [refusal.rejection.text for refusal in log.refusals("main", "a")] == ["no tanh"]


def test_the_warning_names_the_line_with_the_old_name() -> None:
    make: Any = FuseOpsByPattern
    with pytest.warns(DeprecationWarning, match="is deprecated since") as caught:
        assert make([], admit=refuse).admit is refuse
    assert [warning.filename for warning in caught] == [__file__, __file__]


def test_the_report_takes_the_old_keywords() -> None:
    log = PartitionLog()
    module = partition(R.parse(MODULE), ["host"], log=log)
    report: Any = build_report
    with pytest.warns(DeprecationWarning, match=r"build_report\((asked|whole)=...\)"):
        data = report(module, log, host="host", asked=["aone"], whole=module)
    assert data == build_report(module, log, host="host", backends=["aone"], unpeeled=module)


def test_an_old_and_its_new_keyword_together_are_an_error() -> None:
    module, report = R.parse(MODULE), cast("Any", build_report)
    with pytest.raises(TypeError, match=r"build_report\(\) got both `backends` and its deprecated name `asked`"):
        report(module, PartitionLog(), host="host", backends=[], asked=["aone"])
