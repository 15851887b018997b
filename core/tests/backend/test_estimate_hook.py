"""``byoc_estimate``: permitted answers and errors."""

from __future__ import annotations

import math
from typing import Any

import pytest
from byoc_core.backend import Estimate
from byoc_core.backend.registry import backends
from byoc_core.errors import HookError
from byoc_core.ir import Function

from core.tests.conftest import FakeBackend

pytestmark = pytest.mark.asks_for_plugins


def _ask(fake_backend: type[FakeBackend], answer: Any) -> Estimate | None:
    handle = backends().get(fake_backend("npu", estimate=lambda function: answer))
    return handle.estimate(Function("nn.relu", (), (), ()), handle.context())


def test_an_estimate_and_no_estimate_are_answers(fake_backend: type[FakeBackend]) -> None:
    estimate = Estimate(1e-3, call_seconds=2e-5, bytes_per_second=8e9)
    assert _ask(fake_backend, estimate) is estimate
    assert _ask(fake_backend, Estimate(0)) == Estimate(0.0, 0.0, 0.0)
    assert _ask(fake_backend, None) is None


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (1e-3, "returned a value of the wrong type; got float, expected Estimate"),
        (
            Estimate(-1.0),
            "returned a bad `seconds` for function `nn.relu`; got -1.0, expected a finite int or float, 0 or more",
        ),
        (
            Estimate(1.0, call_seconds=math.nan),
            "returned a bad `call_seconds` for function `nn.relu`; got nan, expected a finite int or float, 0 or more",
        ),
        (
            Estimate(1.0, bytes_per_second=math.inf),
            (
                "returned a bad `bytes_per_second` for function `nn.relu`; got inf, "
                "expected a finite int or float, 0 or more"
            ),
        ),
        (
            Estimate("1 ms"),  # type: ignore[arg-type]
            "returned a bad `seconds` for function `nn.relu`; got '1 ms', expected a finite int or float, 0 or more",
        ),
    ],
)
def test_a_bad_estimate_is_an_error_that_names_the_hook(
    fake_backend: type[FakeBackend], answer: object, text: str
) -> None:
    with pytest.raises(HookError) as caught:
        _ask(fake_backend, answer)
    assert str(caught.value) == f"plugin `npu`, hook `byoc_estimate`: {text}"
