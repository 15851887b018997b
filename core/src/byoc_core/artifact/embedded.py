"""Functions of an exported library that need Python, called by the library in the interpreter of the process.

The C side is ``native/byoc_python.c``; the artifact lies in the library's own memory, and is read there.
"""

from __future__ import annotations

import ctypes
from functools import cache

from byoc_core.artifact.library import ExecutableModule
from byoc_core.artifact.loading import OpenedArtifact, load_opened
from byoc_core.errors import CallError
from byoc_core.native.abi import DLTensor
from byoc_core.runtime.dlpack import view_of_tensor

__all__ = ["call"]


def call(
    artifact: int, artifact_nbytes: int, name: str, tensors: int, num_tensors: int, error: int, error_nbytes: int
) -> int:
    """Run a function of the artifact at an address.

    Args:
        artifact: address of the first byte; the artifact stays there as long as the process runs.
        artifact_nbytes: the artifact's size.
        name: the name of the function.
        tensors: address of ``num_tensors`` pointers ``DLTensor *``, inputs and then outputs.
        num_tensors: the number of tensors.
        error: address of memory for an exception's name and text, each ended by a zero byte.
        error_nbytes: the size of this memory.

    Returns:
        0, or -1 after an exception, which is reported at ``error`` only.
    """
    try:
        module = _module_at(artifact, artifact_nbytes)
        pointers = (ctypes.POINTER(DLTensor) * num_tensors).from_address(tensors)
        arrays = [
            view_of_tensor(pointer.contents, f"function `{name}`, argument {i}") for i, pointer in enumerate(pointers)
        ]
        function = module.get_function(name)
        if function.returns_results:
            raise CallError(
                f"function `{name}`",
                "returns results of sizes known only after running, so cannot fill buffers",
                hint="Call the function through byoc_core.load_module(...).",
            )
        function(*arrays)
    except Exception as failure:  # noqa: BLE001 - the border to C: no exception may cross it
        text = f"{_builtin_name(failure)}\0{failure}".encode(errors="replace")[: error_nbytes - 1] + b"\0"
        ctypes.memmove(error, text, len(text))
        return -1
    return 0


@cache
def _module_at(address: int, nbytes: int) -> ExecutableModule:
    memory = memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B").toreadonly()
    # Loading the library already allowed the library's native code.
    return ExecutableModule(load_opened(OpenedArtifact.open(memory, "the library's artifact"), allow_native=True))


def _builtin_name(error: Exception) -> str:
    """Return the name of a builtin Python exception, known to other programs, for an exception of byoc."""
    return "ValueError" if isinstance(error, CallError) else "RuntimeError"
