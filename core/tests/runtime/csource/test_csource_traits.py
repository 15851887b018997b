"""Permissions of generated C's functions for their callers: in C, in the module, in the saved form."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from byoc_core.authoring.csource import CSourceCodegen, FunctionScope
from byoc_core.dims import Dim, parse_dim
from byoc_core.errors import ArtifactError, ExecutionError, InternalError
from byoc_core.ir import FunctionBuilder, tensor
from byoc_core.native.toolchain import BuildOptions, Toolchain
from byoc_core.ops import default_ops
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.csource_plugin import byoc_load_module, byoc_runtime_info, byoc_save_module
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import CallTraits, NDArray

pytestmark = pytest.mark.interpreter

CONTEXT = LoadContext(allow_native=True, source="model.byoc")
WARNINGS = ("-Wall", "-Wextra", "-Werror")


class Codegen(CSourceCodegen):
    """The plain form, with scratch memory filled by the first kernel."""

    def __init__(self, nbytes: Dim) -> None:
        super().__init__(BuildOptions(1, "generic", WARNINGS))
        self.nbytes = nbytes

    def visit_function(self, scope: FunctionScope) -> None:
        scope.statements.append(f"memset({scope.workspace(self.nbytes)}, 255, 64);")
        scope.in_place = ((0, 0),)
        super().visit_function(scope)


def _module(nbytes: Dim = 128, size: int | str = 3) -> CSourceModule:
    builder = FunctionBuilder("f", ops=default_ops())
    x = builder.param("x", tensor((size,)))
    return Codegen(nbytes).generate(builder.finish(*builder.bind("negative", [x], {}).results))


def _aligned(nbytes: int, offset: int = 0) -> Any:
    memory = np.zeros(nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + nbytes]


def _header(payload: bytes) -> Any:
    start = len(b"byoc-csource-1\n") + 32
    (length, _, _) = struct.unpack_from("<QQQ", payload, start)
    return json.loads(payload[start + 24 : start + 24 + length])


def _with_header(payload: bytes, header: Mapping[str, Any], magic: bytes) -> bytes:
    """Return the payload with another header, and a matching digest."""
    start = len(magic) + 32
    lengths = struct.unpack_from("<QQQ", payload, start)
    text = json.dumps(header, sort_keys=True).encode()
    body = struct.pack("<QQQ", len(text), *lengths[1:]) + text + payload[start + 24 + lengths[0] :]
    return magic + hashlib.sha256(body).digest() + body


@pytest.mark.parametrize("with_plain_buffers", [False, True])
def test_a_workspace_is_used_or_allocated(*, with_plain_buffers: bool) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    value = builder.param("x", tensor((3,)))
    for _ in range(2 if with_plain_buffers else 1):
        (value,) = builder.bind("negative", [value], {}).results
    module = Codegen(128).generate(builder.finish(value))
    x, out, workspace = np.arange(3, dtype="float32"), np.empty(3, "float32"), _aligned(128)
    module.get_function("f")(x, out)
    sign = 1 if with_plain_buffers else -1
    np.testing.assert_array_equal(out, sign * x)
    out[:] = 0
    module.get_function("f").impl(x, out, workspace)
    np.testing.assert_array_equal(out, sign * x)
    assert workspace.tolist() == [255] * 64 + [0] * 64


def test_with_a_workspace_nothing_is_allocated() -> None:
    module = _module()
    source = module.get_source()
    assert source.count("byoc_new_workspace(") == 1
    assert "alloc(" not in source
    failing = source.replace("byoc_new_workspace(128)", "NULL")
    function = CSourceModule(failing, module.signatures, traits=module.traits).get_function("f")
    x, out = np.arange(3, dtype="float32"), np.empty(3, "float32")
    with pytest.raises(ExecutionError) as caught:
        function(x, out)
    assert str(caught.value) == "function `f`: no memory for intermediate tensors"
    function.impl(x, out, _aligned(128))
    np.testing.assert_array_equal(out, -x)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: _aligned(127),
            "function `f`, argument `workspace`: is too small; got 127 bytes, expected 128",
        ),
        (lambda: _aligned(128, 32), "function `f`, argument `workspace`: is not aligned to 64 bytes"),
    ],
)
def test_a_workspace_is_checked(make: Callable[[], NDArray], text: str) -> None:
    with pytest.raises(ExecutionError) as caught:
        _module().get_function("f").impl(np.ones(3, "float32"), np.empty(3, "float32"), make())
    assert str(caught.value) == text


def test_a_function_without_traits_takes_no_workspace() -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    x = builder.param("x", tensor((3,)))
    module = CSourceCodegen().generate(builder.finish(*builder.bind("negative", [x], {}).results))
    with pytest.raises(InternalError, match="wrong number of arrays; got 3, expected 2"):
        module.get_function("f").impl(np.ones(3, "float32"), np.empty(3, "float32"), _aligned(64))


def test_a_symbolic_size_is_checked_and_may_be_nothing() -> None:
    function = _module(nbytes=parse_dim("64*n"), size="n").get_function("f")
    for size in (4, 1):
        x, out = np.arange(size, dtype="float32"), np.empty(size, "float32")
        function(x, out)
        np.testing.assert_array_equal(out, -x)
        function.impl(x, out, _aligned(64 * size))
    with pytest.raises(ExecutionError, match="is too small; got 64 bytes, expected 128"):
        function.impl(np.ones(2, "float32"), np.empty(2, "float32"), _aligned(64))


def test_traits_are_told_without_building(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toolchain, "compile", lambda *_, **__: pytest.fail("compiled"))
    module = _module()
    assert module.call_traits("f") == CallTraits(in_place=((0, 0),), workspace_nbytes=128)
    assert module.find_signature("f") == module.signatures["f"]
    assert CSourceModule("", module.signatures).call_traits("f") == CallTraits()


@pytest.mark.parametrize("nbytes", [128, parse_dim("64*n")])
def test_traits_are_saved_in_format_2(nbytes: Dim) -> None:
    module = _module(nbytes=nbytes, size="n")
    payload = byoc_save_module(module)
    assert payload.startswith(b"byoc-csource-2\n")
    assert module.payload_format == 2
    assert 2 in byoc_runtime_info().formats
    loaded = byoc_load_module(payload, CONTEXT)
    assert loaded.call_traits("f") == module.call_traits("f")
    assert byoc_save_module(loaded) == payload


def test_a_module_without_traits_is_saved_as_before() -> None:
    module = _module()
    plain = CSourceModule(module.get_source(), module.signatures, options=module.options, library=module.build())
    assert plain.payload_format == 1
    payload = byoc_save_module(plain)
    assert payload.startswith(b"byoc-csource-1\n")
    assert [sorted(function) for function in _header(payload)["functions"]] == [["inputs", "outputs", "symbol"]]
    assert byoc_load_module(payload, CONTEXT).call_traits("f") == CallTraits()


TRAITS: dict[str, Any] = {"strided": False, "in_place": [[0, 0]], "workspace_nbytes": 128}


@pytest.mark.parametrize(
    ("traits", "magic", "detail"),
    [
        (TRAITS, b"byoc-csource-1\n", "the format does not fit the content"),
        (None, b"byoc-csource-2\n", "the format does not fit the content"),
        (TRAITS | {"in_place": [[1, 0]]}, b"byoc-csource-2\n", "names a missing tensor"),
        (TRAITS | {"in_place": [[0, 1]]}, b"byoc-csource-2\n", "names a missing tensor"),
        (TRAITS | {"workspace_nbytes": -1}, b"byoc-csource-2\n", "An integer from 0"),
        (TRAITS | {"workspace_nbytes": "n+"}, b"byoc-csource-2\n", "n+"),
        (TRAITS | {"more": 1}, b"byoc-csource-2\n", "Extra inputs are not permitted"),
    ],
)
def test_malformed_traits(traits: dict[str, Any] | None, magic: bytes, detail: str) -> None:
    payload = byoc_save_module(_module())
    header = _header(payload)
    if traits is None:
        del header["functions"][0]["traits"]
    else:
        header["functions"][0]["traits"] = traits
    with pytest.raises(ArtifactError, match=r"^model.byoc: the header of a csource module is malformed") as caught:
        byoc_load_module(_with_header(payload, header, magic), CONTEXT)
    assert detail in str(caught.value)
