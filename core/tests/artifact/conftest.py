"""A small executable: one graph module, one constant of the program, one of the module, a symbolic size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.digest import digest_of
from byoc_core.dims import parse_dim
from byoc_core.runtime.graph import GraphModule
from byoc_core.runtime.graph.document import GraphConstant, GraphDocument, GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm import Call, CallKind, ConstantRef, Program, Ret, VirtualMachine, VMFunction

N = parse_dim("n")
REPORT = {
    "backends": [{"name": "host", "regions": 1, "ops": 2, "flops": 8, "share": 1.0}],
    "total_flops": 8,
    "offloaded_share": 0.0,
    "ops": [
        {
            "function": "main", "op": "add", "name": "lv0", "outcome": "host", "region": "region0",
            "code": "forced", "text": "forced to the host", "flops": 8, "share": 1.0,
        }
    ],
}  # fmt: skip


def make_executable(constant_size: int = 4) -> Executable:
    """Return y = (x + weight) + bias for x (n, size)."""
    weight = np.arange(constant_size, dtype="float32")
    bias = np.full(constant_size, 2, "float32")
    weight_digest, bias_digest = digest_of(weight), digest_of(bias)
    tensor = GraphTensor("float32", (N, constant_size))
    vector = GraphTensor("float32", (constant_size,))
    region = GraphFunction(
        "region0",
        (TensorSpec("x", "float32", tensor.shape), TensorSpec("bias", "float32", vector.shape)),
        (GraphConstant(weight_digest, vector),),
        (GraphNode("add", (0, 2), (tensor,)), GraphNode("add", (3, 1), (tensor,))),
        (("y", 4),),
    )
    module = GraphModule(GraphDocument({"region0": region}), {weight_digest: weight})
    main = VMFunction(
        "main",
        (TensorSpec("x", "float32", tensor.shape),),
        (TensorSpec("y", "float32", tensor.shape),),
        (0,),
        (),
        (),
        (),
        (Call(CallKind.EXTERN, 0, (0, 2), (1,)), Ret((1,))),
    )
    program = Program((main,), ("region0",), (ConstantRef(bias_digest, "float32", (constant_size,)),))
    return Executable(program, [module], {bias_digest: bias}, REPORT)


@pytest.fixture
def executable() -> Executable:
    return make_executable()


@pytest.fixture(scope="session")
def content() -> bytes:
    """Return the bytes of the executable's artifact."""
    return make_executable().to_bytes()


@pytest.fixture
def saved(executable: Executable, tmp_path: Path) -> Path:
    path = tmp_path / "model.byoc"
    executable.save(path)
    return path


@pytest.fixture
def sized_executable() -> Callable[[int], Executable]:
    """Return executables with two constants of the given number of elements."""
    return make_executable


@pytest.fixture
def check_runs() -> Callable[[Executable], None]:
    """Return a function checking the results of an executable for several sizes."""

    def check(executable: Executable) -> None:
        machine = VirtualMachine(executable)
        for n in (1, 3):
            size = executable.functions["main"].inputs[0].shape[1]
            assert isinstance(size, int)
            x = np.random.default_rng(n).random((n, size), "float32")
            y = machine["main"](x)
            assert np.array_equal(y, x + np.arange(size, dtype="float32") + np.float32(2))

    return check


@pytest.fixture(autouse=True)
def _trust_nothing(own_cache: Path) -> None:
    """A cache for each test: artifacts recorded in the user's cache need no permission."""
