"""The saved form of a C-source module: one checked container of signatures, text and library.

Layout: a magic line with the version, the SHA-256 of all following bytes, three lengths (little-endian, 8 bytes each),
then a JSON header, the C text and the shared library. Constants are cited by digest. Equal modules give equal bytes.
Format 2 adds to the header the permissions of functions for callers, and the target triple of code for another machine.
Format 3 adds the names of the author's libraries and objects, without folders. A module is saved in the lowest
sufficient format.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path

from byoc_core.errors import ArtifactError, ByocError
from byoc_core.native.cpu import Target
from byoc_core.native.toolchain import BuildOptions, CompiledLibrary
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.json_records import (
    DIM,
    DTYPE,
    MisfitError,
    OptionalField,
    flag,
    integer,
    list_of,
    one_of,
    parse_json,
    record,
    shape_of,
    text,
    to_json,
)
from byoc_core.runtime.module import CallTraits, Signature, TensorSpec

__all__ = ["FORMATS", "decode", "encode"]

FORMATS = (1, 2, 3)
"""The versions of the layout; :func:`encode` writes the version of :attr:`CSourceModule.payload_format`."""

_MAGICS = {version: f"byoc-csource-{version}\n".encode() for version in FORMATS}
_MAGIC_LENGTH = len(_MAGICS[1])
_LENGTHS = struct.Struct("<QQQ")


@dataclass(frozen=True, slots=True)
class _Function:
    symbol: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    traits: CallTraits | None = None

    def __post_init__(self) -> None:
        pairs = () if self.traits is None else self.traits.in_place
        if any(output >= len(self.outputs) or index >= len(self.inputs) for output, index in pairs):
            raise MisfitError("A pair of `in_place` names a missing tensor")


@dataclass(frozen=True, slots=True)
class _Header:
    functions: tuple[_Function, ...]
    constants: tuple[str, ...]
    opt_level: int
    march: str
    extra_flags: tuple[str, ...]
    system: str
    machine: str
    features: tuple[str, ...]
    target: str | None = None
    libraries: tuple[str, ...] | None = None
    not_held: tuple[str, ...] | None = None


def _read_pair(value: object) -> tuple[int, int]:
    numbers = _read_numbers(value)
    if len(numbers) != 2:
        raise MisfitError("A pair is required")
    return (numbers[0], numbers[1])


_TEXT = text()
_TEXTS = list_of(_TEXT)
_TENSORS = list_of(record(TensorSpec, name=_TEXT, dtype=DTYPE, shape=shape_of(max_rank=64)))
_read_numbers = list_of(integer(0))
_TRAITS = record(CallTraits, strided=flag, in_place=list_of(_read_pair), workspace_nbytes=DIM)
_read_header = record(
    _Header,
    functions=list_of(
        record(
            _Function,
            symbol=text("[A-Za-z_][A-Za-z0-9_]*"),
            inputs=_TENSORS,
            outputs=_TENSORS,
            traits=OptionalField(_TRAITS),
        )
    ),
    constants=_TEXTS,
    opt_level=one_of(0, 1, 2, 3),
    march=_TEXT,
    extra_flags=_TEXTS,
    system=_TEXT,
    machine=_TEXT,
    features=_TEXTS,
    target=OptionalField(_TEXT),
    libraries=OptionalField(list_of(text("[A-Za-z0-9_+.-]+"))),
    not_held=OptionalField(list_of(text("[^/\\\\\\0]+"))),
)


def encode(module: CSourceModule) -> bytes:
    """Return a module as bytes; compile the module first if needed.

    Raises:
        ToolchainError: the module must be compiled and cannot be.
    """
    library = module.build()
    header = _Header(
        functions=tuple(
            _Function(name, s.inputs, s.outputs, module.traits.get(name)) for name, s in module.signatures.items()
        ),
        constants=tuple(module.constants),
        opt_level=module.options.opt_level,
        march=module.options.march,
        extra_flags=module.options.extra_flags,
        system=library.target.system,
        machine=library.target.machine,
        features=library.target.features,
        target=module.options.target or None,
        libraries=module.options.libraries or None,
        not_held=_not_held(module) or None,
    )
    parts = (json.dumps(header, default=to_json, sort_keys=True).encode(), module.get_source().encode(), library.data)
    body = _LENGTHS.pack(*map(len, parts)) + b"".join(parts)
    return _MAGICS[module.payload_format] + hashlib.sha256(body).digest() + body


def _not_held(module: CSourceModule) -> tuple[str, ...]:
    """Return the names of all build inputs left out of the payload."""
    own = [Path(path).name for path in module.options.extra_objects]
    return (*module.not_held, *own, *(["headers"] if module.options.include_dirs else []))


def decode(payload: bytes, context: LoadContext) -> CSourceModule:
    """Return the module of a payload; nothing in the payload runs before a function is requested.

    Raises:
        ArtifactError: the bytes are not a module, or cite a missing constant.
    """
    header_text, source, library = _split(payload, context.source)
    try:
        header = _read_header(parse_json(header_text))
        functions = {function.symbol: Signature(function.inputs, function.outputs) for function in header.functions}
        traits = {function.symbol: function.traits for function in header.functions if function.traits is not None}
        options = BuildOptions(
            header.opt_level, header.march, header.extra_flags, header.target or "", header.libraries or ()
        )
        source_text = source.decode()
    except (ValueError, ByocError) as error:
        raise ArtifactError(context.source, "the header of a csource module is malformed", detail=str(error)) from error
    target = Target(header.system, header.machine, header.features)
    constants = {digest: context.constant(digest) for digest in header.constants}
    compiled = CompiledLibrary(library, target)
    module = CSourceModule(
        source_text,
        functions,
        constants=constants,
        options=options,
        library=compiled,
        traits=traits,
        not_held=header.not_held or (),
    )
    if not payload.startswith(_MAGICS[module.payload_format]):
        raise ArtifactError(
            context.source,
            "the header of a csource module is malformed",
            detail="the format does not fit the content",
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
        raise ArtifactError(where, "a csource module is damaged: the digest does not fit the bytes")
    lengths = _LENGTHS.unpack_from(body)
    if _LENGTHS.size + sum(lengths) != len(body):
        raise ArtifactError(where, "a csource module is damaged: the lengths do not fit the bytes")
    parts = []
    position = _LENGTHS.size
    for length in lengths:
        parts.append(bytes(body[position : position + length]))
        position += length
    return (parts[0], parts[1], parts[2])
