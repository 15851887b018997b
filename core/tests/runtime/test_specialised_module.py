"""The module finding the variant for the sizes of a call: caches, locks, checks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.authoring import GraphCodegen
from byoc_core.backend.hooks import CompileContext
from byoc_core.errors import (
    CallError,
)
from byoc_core.runtime.specialised import MAX_FIRST_USES, MAX_HOST_SIZES, SizesRefused, SpecialisedModule

from core.tests.specialised_toys import host_lines, made_module

pytestmark = pytest.mark.interpreter


def test_the_cache_is_bounded_and_the_set_used_least_recently_goes() -> None:
    module, compiled, _ = made_module(2)
    function = module.get_function("f")
    for n in (1, 2, 1, 3, 1, 2):
        x, out = np.ones(n, np.float32), np.zeros(n, np.float32)
        function(x, out)
        assert out.tolist() == [2.0] * n
    assert compiled == [1, 2, 3, 2]
    assert module.compiled_sizes("f") == ((("n", 1),), (("n", 2),))


def test_the_sizes_that_run_on_the_host_are_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    module, _, signatures = made_module(2)
    asked: list[int] = []

    def refuse(name: str, sizes: Mapping[str, int]) -> SizesRefused:
        asked.append(sizes["n"])
        return SizesRefused("no")

    function = R.parse("def f(x: R.Tensor(('n',), 'float32')):\n    a = R.add(x, x)\n    return a\n")["f"]
    host = GraphCodegen().compile([function], CompileContext("host")).module
    module = SpecialisedModule("toy", signatures, (), refuse, host=host)
    call = module.get_function("f")

    def run(n: int) -> None:
        x, out = np.ones(n, np.float32), np.zeros(n, np.float32)
        call(x, out)
        assert out.tolist() == [2.0] * n

    for n in range(MAX_HOST_SIZES + 1):
        run(n)
    run(MAX_HOST_SIZES)
    assert asked == list(range(MAX_HOST_SIZES + 1))
    run(0)  # forgotten
    assert asked[-1] == 0
    assert len(host_lines(caplog)) == MAX_HOST_SIZES + 2
    assert MAX_FIRST_USES == 16
    assert module.compiled_sizes("f") == ()


def test_calls_with_known_sizes_do_not_wait_for_the_compiler() -> None:
    _, _, signatures = made_module(2)
    begun, go_on = threading.Event(), threading.Event()

    def compile_sizes(name: str, sizes: Mapping[str, int]) -> Any:
        if sizes["n"] == 2:
            begun.set()
            assert go_on.wait(60)
        function = R.parse(f"def f(x: R.Tensor(({sizes['n']},), 'float32')):\n    a = R.add(x, x)\n    return a\n")["f"]
        return GraphCodegen().compile([function], CompileContext("toy")).module

    call = SpecialisedModule("toy", signatures, (), compile_sizes).get_function("f")
    ones, outs = [np.ones(n, np.float32) for n in range(3)], [np.zeros(n, np.float32) for n in range(3)]
    call(ones[1], outs[1])
    thread = threading.Thread(target=call, args=(ones[2], outs[2]))
    thread.start()
    assert begun.wait(60)
    outs[1][:] = 0
    call(ones[1], outs[1])  # would wait for ever
    assert outs[1].tolist() == [2.0]
    assert outs[2].tolist() == [0.0, 0.0]
    go_on.set()
    thread.join()
    assert outs[2].tolist() == [2.0, 2.0]


def test_outputs_of_other_sizes_reach_no_variant() -> None:
    module, _, _ = made_module(2)
    implementation = module.get_function("f").impl
    with pytest.raises(CallError, match=r"output `a`: has the wrong shape; got \[2\], expected \[3\]"):
        implementation(np.ones(3, np.float32), np.zeros(2, np.float32))
