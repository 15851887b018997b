"""The compiled form of regions: OpenCL C, and for each function the launches of kernels; with the saved form, JSON.

Launches name memory by number: the inputs of the function, then the outputs, then the parts of the workspace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from byoc_core.dims import Dim, bound_symbols, read_dim, symbols_of
from byoc_core.dtypes import dtype_info
from byoc_core.errors import ArtifactError, ByocError
from byoc_core.runtime.module import MemoryDomain, Signature, TensorSpec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

__all__ = ["DOMAIN", "DeviceFunction", "DeviceProgram", "Launch", "Part", "decode", "encode"]

DOMAIN = MemoryDomain("opencl", alignment=128, peer_copies=True)
"""Memory of OpenCL devices: buffers are aligned to the largest type of OpenCL C. Devices of a driver copy directly."""

_KERNEL = re.compile(r"__kernel void (\w+)\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a function's workspace.

    Attributes:
        dtype: the dtype of the elements.
        offset: bytes from the start of the workspace.
        nbytes: the bytes of the part.
    """

    dtype: str
    offset: Dim
    nbytes: Dim


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of a kernel. The arguments are a buffer and an offset in elements for each memory, then the sizes.

    Attributes:
        kernel: the name of the kernel.
        memory: the numbers of the kernel's memory.
        sizes: the sizes passed to the kernel.
        rounds: the number of independent pieces of work; any number of threads does all pieces.
    """

    kernel: str
    memory: tuple[int, ...]
    sizes: tuple[Dim, ...]
    rounds: Dim


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """A compiled function.

    Attributes:
        name: the symbol.
        signature: inputs and outputs.
        parts: the parts of the workspace.
        workspace_nbytes: the bytes of the workspace.
        launches: the launches, in order.
    """

    name: str
    signature: Signature
    parts: tuple[Part, ...]
    workspace_nbytes: Dim
    launches: tuple[Launch, ...]

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtype of each memory."""
        specs = (*self.signature.inputs, *self.signature.outputs)
        return (*(spec.dtype for spec in specs), *(part.dtype for part in self.parts))


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """The compiled functions of a module.

    Attributes:
        source: the kernels, in OpenCL C.
        functions: the functions.
    """

    source: str
    functions: tuple[DeviceFunction, ...]


_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=1000)]
_Size = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)] | Annotated[str, Field(strict=True)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Tensor(_Record):
    name: str
    dtype: str
    shape: Annotated[list[_Size], Field(max_length=64)]


class _Part(_Record):
    dtype: str
    offset: _Size
    nbytes: _Size


class _Launch(_Record):
    kernel: _Name
    memory: list[Annotated[int, Field(ge=0)]]
    sizes: list[_Size]
    rounds: _Size


class _Function(_Record):
    name: _Name
    inputs: list[_Tensor]
    outputs: list[_Tensor]
    parts: list[_Part]
    workspace_nbytes: _Size
    launches: list[_Launch]


class _Document(_Record):
    functions: list[_Function]
    source: str


def encode(program: DeviceProgram) -> bytes:
    """Return a program as bytes; equal programs give equal bytes."""
    document = {
        "functions": [
            {
                "name": function.name,
                "inputs": list(map(_tensor_record, function.signature.inputs)),
                "outputs": list(map(_tensor_record, function.signature.outputs)),
                "parts": [
                    {"dtype": part.dtype, "offset": _saved(part.offset), "nbytes": _saved(part.nbytes)}
                    for part in function.parts
                ],
                "workspace_nbytes": _saved(function.workspace_nbytes),
                "launches": [
                    {
                        "kernel": launch.kernel,
                        "memory": list(launch.memory),
                        "sizes": list(map(_saved, launch.sizes)),
                        "rounds": _saved(launch.rounds),
                    }
                    for launch in function.launches
                ],
            }
            for function in program.functions
        ],
        "source": program.source,
    }
    return json.dumps(document, sort_keys=True, indent=1).encode()


def _tensor_record(spec: TensorSpec) -> dict[str, object]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(map(_saved, spec.shape))}


def _saved(dim: Dim) -> int | str:
    return dim if isinstance(dim, int) else str(dim)


def decode(payload: bytes, source: str) -> DeviceProgram:
    """Return the program of bytes from :func:`encode`; nothing is compiled.

    Args:
        payload: the bytes.
        source: the origin of the bytes, for messages.

    Raises:
        ArtifactError: the bytes are no program, or a launch names absent memory, an absent kernel or an unknown size.
    """
    try:
        document = _Document.model_validate_json(payload)
        functions = tuple(map(_function_of, document.functions))
        names = [function.name for function in functions]
        if len(set(names)) < len(names):
            raise ValueError("two functions have the same name")
        program = DeviceProgram(document.source, functions)
        counts = {name: 1 + parameters.count(",") for name, parameters in _KERNEL.findall(document.source)}
        for function in functions:
            _check(function, counts)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "the document"
        raise ArtifactError(source, "is no program for OpenCL devices", detail=f"{field}: {first['msg']}") from error
    except (ValueError, ByocError) as error:
        raise ArtifactError(source, "is no program for OpenCL devices", detail=str(error)) from error
    return program


def _function_of(record: _Function) -> DeviceFunction:
    return DeviceFunction(
        record.name,
        Signature(tuple(map(_spec_of, record.inputs)), tuple(map(_spec_of, record.outputs))),
        tuple(Part(_dtype(part.dtype), _dim(part.offset), _dim(part.nbytes)) for part in record.parts),
        _dim(record.workspace_nbytes),
        tuple(
            Launch(launch.kernel, tuple(launch.memory), tuple(map(_dim, launch.sizes)), _dim(launch.rounds))
            for launch in record.launches
        ),
    )


def _spec_of(record: _Tensor) -> TensorSpec:
    return TensorSpec(record.name, _dtype(record.dtype), tuple(map(_dim, record.shape)))


def _dtype(name: str) -> str:
    return dtype_info(name).name


def _dim(value: int | str) -> Dim:
    return value if isinstance(value, int) else read_dim(value)


def _check(function: DeviceFunction, num_parameters: Mapping[str, int]) -> None:
    """Check the references of a function, given the number of parameters of each kernel.

    Raises:
        ValueError: a launch names absent memory or an absent kernel, or passes another number of arguments; or a size
            is in no shape of the signature.
    """
    specs = (*function.signature.inputs, *function.signature.outputs)
    determined = bound_symbols(spec.shape for spec in specs)
    sizes: list[Dim] = [function.workspace_nbytes]
    for part in function.parts:
        sizes += [part.offset, part.nbytes]
        _check_part(function, part)
    for launch in function.launches:
        sizes += [*launch.sizes, launch.rounds]
        if launch.kernel not in num_parameters:
            raise ValueError(f"function `{function.name}` launches the absent kernel `{launch.kernel}`")
        count = 2 * len(launch.memory) + len(launch.sizes)
        if count != num_parameters[launch.kernel]:
            raise ValueError(f"function `{function.name}` passes {count} arguments to kernel `{launch.kernel}`")
        if max(launch.memory, default=0) >= len(function.dtypes):
            raise ValueError(f"function `{function.name}` passes absent memory to kernel `{launch.kernel}`")
    unknown = sorted(frozenset[str]().union(*map(symbols_of, sizes)) - determined)
    if unknown:
        raise ValueError(f"function `{function.name}` needs `{unknown[0]}`, a size in no shape of its tensors")


def _check_part(function: DeviceFunction, part: Part) -> None:
    end, limit = part.offset + part.nbytes, function.workspace_nbytes
    # Symbolic sizes are checked in each call.
    if isinstance(end, int) and isinstance(limit, int) and not 0 <= end <= limit:
        raise ValueError(f"function `{function.name}` has memory outside of its workspace")
    if isinstance(part.offset, int) and part.offset % dtype_info(part.dtype).itemsize:
        raise ValueError(f"function `{function.name}` has memory without alignment")
