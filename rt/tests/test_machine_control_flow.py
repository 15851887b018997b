"""Random programs of nested branches and loops, symbolic and learnt sizes: the bits of Python's machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.native.toolchain import Toolchain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.lower.test_control_flow_property import Maker
from rt.tests.runner import NativeLibrary
from rt.tests.saved import check_calls

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")


def calls() -> Iterator[Sequence[Any]]:
    """Yield inputs of changing sizes, the same sizes in succession included."""
    for n in (4, 0, 1, 1, 4):
        for flag in (True, False):
            table = np.random.default_rng(n).integers(-3, 4, (n, 3)).astype(np.float32)
            yield [np.array(flag), np.array(2, np.int64), np.array([1.5, -2.0, 0.25], np.float32), table]


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_programs_of_the_host_have_the_bits_of_python(
    native: NativeLibrary, tmp_path: Path, data: st.DataObject
) -> None:
    module = Maker(data.draw).module()
    check_calls(byoc_core.build(module, []), native, tmp_path, "main", calls())


@given(st.data())
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=max(1, settings().max_examples // 5)
)
def test_compiled_programs_have_the_bits_of_python(native: NativeLibrary, tmp_path: Path, data: st.DataObject) -> None:
    module = Maker(data.draw).module()
    check_calls(byoc_core.build(module, ["ccompiler"]), native, tmp_path, "main", calls())
