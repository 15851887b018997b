"""The saved form of a C-source module: one checked container of signatures, text and library.

Layout: a magic line with the version, the SHA-256 of all that follows, three lengths (little-endian, 8 bytes each),
then a JSON header, the C text and the shared library. Constants are cited by digest. Equal modules give equal bytes.
Format 2 adds to the header what functions permit their callers; a module whose functions permit nothing has format 1.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from byoc_core.dims import read_dim
from byoc_core.dtypes import dtype_info
from byoc_core.errors import ArtifactError, ByocError
from byoc_core.native.cpu import Target
from byoc_core.native.toolchain import BuildOptions, CompiledLibrary
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import CallTraits, Signature, TensorSpec

__all__ = ["FORMATS", "decode", "encode"]

FORMATS = (1, 2)
"""The versions of the layout; :func:`encode` writes the one that :attr:`CSourceModule.payload_format` names."""

_MAGICS = {version: f"byoc-csource-{version}\n".encode() for version in FORMATS}
_MAGIC_LENGTH = len(_MAGICS[1])
_LENGTHS = struct.Struct("<QQQ")
_MAX_RANK = 64


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Tensor(_Model):
    name: str
    dtype: str
    shape: list[Annotated[int, Field(ge=0, lt=2**63)] | str] = Field(max_length=_MAX_RANK)

    def to_spec(self) -> TensorSpec:
        shape = tuple(dim if isinstance(dim, int) else read_dim(dim) for dim in self.shape)
        return TensorSpec(self.name, dtype_info(self.dtype).name, shape)


class _Traits(_Model):
    strided: bool
    in_place: list[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]]
    workspace_nbytes: Annotated[int, Field(ge=0, lt=2**63)] | str

    def to_traits(self) -> CallTraits:
        nbytes = self.workspace_nbytes
        return CallTraits(self.strided, tuple(self.in_place), nbytes if isinstance(nbytes, int) else read_dim(nbytes))


class _Function(_Model):
    symbol: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    inputs: list[_Tensor]
    outputs: list[_Tensor]
    traits: _Traits | None = None

    def to_signature(self) -> Signature:
        return Signature(
            tuple(tensor.to_spec() for tensor in self.inputs), tuple(tensor.to_spec() for tensor in self.outputs)
        )

    @model_validator(mode="after")
    def check_pairs(self) -> Self:
        pairs = [] if self.traits is None else self.traits.in_place
        if any(output >= len(self.outputs) or index >= len(self.inputs) for output, index in pairs):
            raise ValueError("a pair of `in_place` names a tensor that is not there")
        return self


class _Header(_Model):
    functions: list[_Function]
    constants: list[str]
    opt_level: Literal[0, 1, 2, 3]
    march: str
    extra_flags: list[str]
    system: str
    machine: str
    features: list[str]


def encode(module: CSourceModule) -> bytes:
    """Gives a module as bytes; compiles it first where that has not been done.

    Raises:
        ToolchainError: it must be compiled and cannot be.
    """
    library = module.build()
    header = {
        "functions": [
            _function(symbol, signature) | _traits(module.traits.get(symbol))
            for symbol, signature in module.signatures.items()
        ],
        "constants": list(module.constants),
        "opt_level": module.options.opt_level,
        "march": module.options.march,
        "extra_flags": list(module.options.extra_flags),
        "system": library.target.system,
        "machine": library.target.machine,
        "features": list(library.target.features),
    }
    parts = (json.dumps(header, sort_keys=True).encode(), module.get_source().encode(), library.data)
    body = _LENGTHS.pack(*map(len, parts)) + b"".join(parts)
    return _MAGICS[module.payload_format] + hashlib.sha256(body).digest() + body


def decode(payload: bytes, context: LoadContext) -> CSourceModule:
    """Gives back the module; nothing in it runs before a function is asked for.

    Raises:
        ArtifactError: the bytes are not those of a module, or cite a constant that is not there.
    """
    header_text, source, library = _split(payload, context.source)
    try:
        header = _Header.model_validate_json(header_text)
        functions = {function.symbol: function.to_signature() for function in header.functions}
        traits = {f.symbol: f.traits.to_traits() for f in header.functions if f.traits is not None}
        options = BuildOptions(header.opt_level, header.march, tuple(header.extra_flags))
        text = source.decode()
    except (ValidationError, ByocError, UnicodeDecodeError) as error:
        raise ArtifactError(context.source, "the header of a csource module is malformed", detail=str(error)) from error
    target = Target(header.system, header.machine, tuple(header.features))
    constants = {digest: context.constant(digest) for digest in header.constants}
    compiled = CompiledLibrary(library, target)
    module = CSourceModule(text, functions, constants=constants, options=options, library=compiled, traits=traits)
    if not payload.startswith(_MAGICS[module.payload_format]):
        raise ArtifactError(
            context.source,
            "the header of a csource module is malformed",
            detail="its format is not the one that what its functions permit calls for",
        )
    return module


def _split(payload: bytes, where: str) -> tuple[bytes, bytes, bytes]:
    start = _MAGIC_LENGTH + 32
    magic = payload[:_MAGIC_LENGTH]
    if magic not in _MAGICS.values():
        expected = " or ".join(map(repr, _MAGICS.values()))
        raise ArtifactError(where, "is not a csource module", got=repr(magic), expected=expected)
    body = memoryview(payload)[start:]
    if hashlib.sha256(body).digest() != payload[_MAGIC_LENGTH:start] or len(body) < _LENGTHS.size:
        raise ArtifactError(where, "a csource module is damaged: its digest does not fit its bytes")
    lengths = _LENGTHS.unpack_from(body)
    if _LENGTHS.size + sum(lengths) != len(body):
        raise ArtifactError(where, "a csource module is damaged: its lengths do not fit its bytes")
    parts = []
    position = _LENGTHS.size
    for length in lengths:
        parts.append(bytes(body[position : position + length]))
        position += length
    return (parts[0], parts[1], parts[2])


def _function(symbol: str, signature: Signature) -> dict[str, Any]:
    return {
        "symbol": symbol,
        "inputs": [_tensor(spec) for spec in signature.inputs],
        "outputs": [_tensor(spec) for spec in signature.outputs],
    }


def _traits(traits: CallTraits | None) -> dict[str, Any]:
    if traits is None:
        return {}
    nbytes = traits.workspace_nbytes
    return {
        "traits": {
            "strided": traits.strided,
            "in_place": [list(pair) for pair in traits.in_place],
            "workspace_nbytes": nbytes if isinstance(nbytes, int) else str(nbytes),
        }
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    shape = [dim if isinstance(dim, int) else str(dim) for dim in spec.shape]
    return {"name": spec.name, "dtype": spec.dtype, "shape": shape}
