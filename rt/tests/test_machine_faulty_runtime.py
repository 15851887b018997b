"""Native halves that break their contract: the machine names function and fault, and keeps its memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import parse_dim
from byoc_core.native.toolchain import Toolchain
from byoc_core.vm import CallKind, DynamicTensor, Ret

from core.tests.artifact.fuzzing.members import packed, taken_apart
from rt.tests.programs import compile_c
from rt.tests.runner import NativeError, NativeLibrary, Status
from rt.tests.test_machine_programs import draw
from rt.tests.written_programs import advance, call, executable_of, function_of, spec

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")


@pytest.fixture(scope="module", autouse=True)
def half(native: NativeLibrary, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load the native half."""
    target = tmp_path_factory.mktemp("faulty") / "libfaulty.so"
    source = Path(__file__).with_name("faulty_runtime.c")
    native.load_runtime(compile_c(source, target, "-shared", "-fPIC", "-fvisibility=hidden"))


def artifact_of(name: str, *, is_filling: bool = False) -> bytes:
    """Return an artifact whose only function returns the result of a function of the faulty runtime."""
    x, y = spec("x", "n", 4), spec("y", "k", 4)
    made = [DynamicTensor("float32", (parse_dim("k"), 4), ("k",))]
    function = (
        function_of([x], [spec("y", "n", 4)], [advance(0, 1), Ret((1,))])
        if is_filling
        else function_of([x], [y], [call(CallKind.PACKED, 0, [0], [2]), Ret((2,))], dynamics=made)
    )
    members = taken_apart(executable_of(function).to_bytes())
    manifest: Any = json.loads(members["manifest.json"])
    manifest["runtimes"][0]["type_key"] = manifest["modules"][0]["type_key"] = "faulty"
    changed = {"manifest.json": json.dumps(manifest).encode(), "modules/0/payload": name.encode()}
    return packed({**members, **changed})


@pytest.mark.parametrize("name", ["good", "twice"])
def test_made_results_are_returned(native: NativeLibrary, name: str) -> None:
    function = native.load_bytes(artifact_of(name))["main"]
    for n in (3, 0, 5):
        (found,) = function(draw(n, 4))
        np.testing.assert_array_equal(found, draw(n, 4))
        target = np.empty((n, 4), np.float32)
        function.run_into([draw(n, 4)], [target])
        np.testing.assert_array_equal(target, draw(n, 4))


FAULTS = [
    ("nothing", "the function has not made all of its results"),
    ("other_dtype", "returned value 0 `v0`: wrong dtype; got int8, expected float32"),
    ("other_rank", "returned value 0 `v0`: wrong rank; got 1, expected 2, shape [k, 4]"),
    ("explained", "the explained has failed"),
    ("failing_late", "late"),
    ("no_result", "result 1 of rank 0: no such result"),
    ("negative", "result: a tensor of shape [-1] does not fit into memory"),
    ("huge", "result: a tensor of shape [9223372036854775807, 2] does not fit into memory"),
]


@pytest.mark.parametrize(("name", "problem"), FAULTS)
def test_faults_are_named(native: NativeLibrary, name: str, problem: str) -> None:
    function = native.load_bytes(artifact_of(name))["main"]
    for _ in range(2):
        with pytest.raises(NativeError) as caught:
            function(draw(3, 4))
        assert str(caught.value).startswith(
            "function `main`, instruction 0 (call_packed `advance` of runtime `faulty`)"
        )
        assert str(caught.value).endswith(problem)
        assert caught.value.status is Status.EXECUTION


def test_a_failure_without_a_text_is_a_failure(native: NativeLibrary) -> None:
    with pytest.raises(NativeError, match=r"runtime `faulty`.*: failed: "):
        native.load_bytes(artifact_of("silent"))["main"](draw(3, 4))


def test_functions_must_be_given(native: NativeLibrary) -> None:
    with pytest.raises(NativeError, match="runtime `faulty`: gives no function, or two, for symbol `advance`"):
        native.load_bytes(artifact_of("no_function"))


def test_results_cannot_fill_buffers(native: NativeLibrary) -> None:
    with pytest.raises(NativeError, match="`advance` returns results instead of filling buffers") as caught:
        native.load_bytes(artifact_of("good", is_filling=True))
    assert caught.value.status is Status.LINK
