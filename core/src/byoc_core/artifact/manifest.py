"""The manifest of an artifact: contents, needs, and the digests of the members.

Readers refuse unknown or missing fields everywhere but in the report: any other change of the fields needs a new
:data:`FORMAT_VERSION`. The artifact's identity, and with it trust, is the digest of the manifest's bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from byoc_core.dtypes import dtype_info
from byoc_core.errors import ArtifactError
from byoc_core.runtime.json_records import (
    DTYPE,
    SIZE,
    MisfitError,
    any_json,
    flag,
    integer,
    list_of,
    mapping_of,
    one_of,
    parse_json,
    record,
    shape_of,
    text,
    to_json,
)
from byoc_core.runtime.module import Signature, TensorSpec

__all__ = [
    "CONSTANTS",
    "CONSTANT_ENTRIES",
    "FORMAT_VERSION",
    "ConstantEntry",
    "FunctionEntry",
    "Manifest",
    "ModuleEntry",
    "ReportParts",
    "RuntimeEntry",
    "decode_manifest",
    "encode_manifest",
    "join_report",
    "split_report",
]

FORMAT_VERSION = 1
"""The version of the artifact format written by this core, and the newest readable version."""

CONSTANTS = "constants/"
"""The beginning of the name of a constant's member; the digest follows."""

MAX_NBYTES = 1 << 28
"""A manifest of more bytes is refused."""

_REQUEST, _WEIGHTS = "request", "weights"
_MAX_RANK = 32
_MAX_ELEMENTS = 1 << 56


@dataclass(frozen=True, slots=True)
class FunctionEntry:
    """A callable function, with the signature."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def to_signature(self) -> Signature:
        """Return the signature in the form of the runtime."""
        return Signature(self.inputs, self.outputs)


@dataclass(frozen=True, slots=True)
class RuntimeEntry:
    """A required runtime, with the distribution and version that provided the runtime when the artifact was made."""

    type_key: str
    distribution: str
    version: str
    payload_format: int


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """A runtime module: the payload, native code or not, is the member ``modules/<index>/payload``."""

    type_key: str
    functions: tuple[str, ...]
    native: bool
    digest: str


@dataclass(frozen=True, slots=True)
class ConstantEntry:
    """A constant tensor: the bytes are the member ``constants/<digest>``."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return dtype_info(self.dtype).itemsize * math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole manifest.

    Attributes:
        format: always ``"byoc"``.
        format_version: version of the artifact format.
        core_version: the byoc-core that wrote the manifest.
        functions: the callable functions, in order.
        runtimes: the required runtimes, in order of type key.
        modules: the runtime modules; searched in this order for the program's externs.
        constants: by digest.
        program: SHA-256 of the member ``program``.
    """

    format: str
    format_version: int
    core_version: str
    functions: tuple[FunctionEntry, ...]
    runtimes: tuple[RuntimeEntry, ...]
    modules: tuple[ModuleEntry, ...]
    constants: Mapping[str, ConstantEntry]
    program: str

    def member_names(self) -> set[str]:
        """Return the names of the members of an artifact with this manifest."""
        return {
            "manifest.json",
            "program",
            *(CONSTANTS + digest for digest in self.constants),
            *(f"modules/{index}/payload" for index in range(len(self.modules))),
        }


def encode_manifest(manifest: Manifest, report: Mapping[str, Any]) -> bytes:
    """Return the JSON form of a manifest with an offload report; equal inputs give equal bytes.

    Raises:
        ArtifactError: a name is longer than :func:`decode_manifest` permits, or something else could not be read back.
    """
    content = {**to_json(manifest), "report": report}
    data = json.dumps(content, default=to_json, sort_keys=True, separators=(",", ":")).encode()
    decode_manifest(data, "executable")
    return data


@dataclass(frozen=True, slots=True)
class ReportParts:
    """The parts of a manifest's report, as plain JSON values.

    Attributes:
        report: the offload report.
        request: the compilation request; empty if absent, as in old artifacts.
        weights: the table of weights (:mod:`byoc_core.artifact.weight_table`); ``None`` without swappable weights.
    """

    report: dict[str, Any]
    request: dict[str, Any]
    weights: object = None


def join_report(report: Mapping[str, Any], request: Mapping[str, Any], weights: object = None) -> dict[str, Any]:
    """Return an offload report with compilation request and table of weights, in the form held by the manifest.

    Both are fields of the report: every reader of this format ignores unknown fields there.
    """
    parts = {_REQUEST: request or None, _WEIGHTS: weights}
    return {**report, **{name: part for name, part in parts.items() if part is not None}}


def split_report(report: Mapping[str, Any]) -> ReportParts:
    """Return the parts of a manifest's report."""
    offload_report = {name: value for name, value in report.items() if name not in (_REQUEST, _WEIGHTS)}
    request = report.get(_REQUEST)
    return ReportParts(offload_report, request if isinstance(request, dict) else {}, report.get(_WEIGHTS))


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Decode a manifest; the report is checked, and left for :func:`decode_report`.

    Raises:
        ArtifactError: the data is no manifest, or of a newer format version.
    """
    return _decode(data, where)[0]


def decode_report(data: bytes, where: str) -> dict[str, Any]:
    """Decode the offload report in a manifest, as data.

    Raises:
        ArtifactError: as :func:`decode_manifest`.
    """
    return _decode(data, where)[1]


def _decode(data: bytes, where: str) -> tuple[Manifest, dict[str, Any]]:
    member_where = f"{where}, member manifest.json"
    if len(data) > MAX_NBYTES:
        raise ArtifactError(member_where, "is too large", got=f"{len(data)} bytes", expected=f"at most {MAX_NBYTES}")
    try:
        raw = parse_json(data)
    except ValueError as error:
        raise ArtifactError(member_where, "is not JSON text") from error
    check_version(raw, where)
    try:
        return _read_manifest(raw)
    except MisfitError as misfit:
        raise ArtifactError(member_where, f"is malformed: {misfit}") from misfit


def check_version(raw: Any, where: str) -> None:
    """Raise :class:`ArtifactError` if a parsed manifest is of a newer format version than readable by this core."""
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        maker = raw.get("core_version")
        raise ArtifactError(
            where,
            f"made by byoc-core {maker if isinstance(maker, str) else 'of an unknown version'}"
            f" in artifact format {version}, not readable by this byoc-core",
            expected=f"format {FORMAT_VERSION} or older",
            hint="pip install -U byoc-core",
        )


def _new_constant(dtype: str, shape: tuple[int, ...]) -> ConstantEntry:
    # numpy refuses these arrays even if another size is zero.
    if math.prod([size for size in shape if size]) >= _MAX_ELEMENTS:
        raise MisfitError("Value error, too many elements").inside("shape")
    return ConstantEntry(dtype, shape)


_TEXT = text(min_length=1, max_length=4096)
_DIGEST = text("[0-9a-f]{64}")
_VERSION = integer(1)
_TENSORS = list_of(record(TensorSpec, name=_TEXT, dtype=DTYPE, shape=shape_of()))

CONSTANT_ENTRIES = mapping_of(_DIGEST, record(_new_constant, dtype=DTYPE, shape=list_of(SIZE, max_length=_MAX_RANK)))
"""The reader of constants by digest."""

_read_manifest = record(
    lambda report, **fields: (Manifest(**fields), report),
    format=one_of("byoc"),
    format_version=_VERSION,
    core_version=_TEXT,
    functions=list_of(record(FunctionEntry, name=_TEXT, inputs=_TENSORS, outputs=_TENSORS)),
    runtimes=list_of(record(RuntimeEntry, type_key=_TEXT, distribution=_TEXT, version=_TEXT, payload_format=_VERSION)),
    modules=list_of(record(ModuleEntry, type_key=_TEXT, functions=list_of(_TEXT), native=flag, digest=_DIGEST)),
    constants=CONSTANT_ENTRIES,
    program=_DIGEST,
    report=any_json,
)
