"""The manifest of an artifact: what it holds, what it needs, and the digests of its members."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from byoc_core.dims import Dim, DimExpr, read_dim
from byoc_core.dtypes import dtype_info
from byoc_core.errors import ArtifactError, IRTypeError
from byoc_core.runtime.module import Signature, TensorSpec

__all__ = [
    "FORMAT_VERSION",
    "ConstantEntry",
    "FunctionEntry",
    "Manifest",
    "ModuleEntry",
    "RuntimeEntry",
    "TensorEntry",
    "decode_manifest",
    "encode_manifest",
]

FORMAT_VERSION = 1
"""The version of the artifact format that this core writes, and the newest that it reads."""

MAX_NBYTES = 1 << 28
"""A manifest of more bytes than this is refused."""

_MAX_RANK = 32
_MAX_ELEMENTS = 1 << 56

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, Field(min_length=1, max_length=4096)]
Size = Annotated[int, Field(ge=0, lt=2**63)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TensorEntry(_Entry):
    """One argument or result; sizes are integers, or expressions as text."""

    name: Text
    dtype: str
    shape: list[Size | str]

    @field_validator("dtype")
    @classmethod
    def _check_dtype(cls, value: str) -> str:
        try:
            return dtype_info(value).name
        except IRTypeError as error:
            raise ValueError(error.problem) from error

    @field_validator("shape")
    @classmethod
    def _check_shape(cls, value: list[int | str]) -> list[int | str]:
        for dim in value:
            if isinstance(dim, str):
                _read_dim(dim)
        return value

    def to_spec(self) -> TensorSpec:
        """Gives the entry as the runtime has it."""
        return TensorSpec(self.name, self.dtype, tuple(d if isinstance(d, int) else _read_dim(d) for d in self.shape))

    @classmethod
    def from_spec(cls, spec: TensorSpec) -> TensorEntry:
        """Gives the entry of a spec."""
        return cls(name=spec.name, dtype=spec.dtype, shape=[d if isinstance(d, int) else str(d) for d in spec.shape])


def _read_dim(text: str) -> Dim:
    try:
        dim = read_dim(text)
    except IRTypeError as error:
        raise ValueError(error.problem) from error
    if not isinstance(dim, DimExpr):
        raise ValueError(f"the size {text[:40]!r} is a number in text form")
    return dim


class FunctionEntry(_Entry):
    """A function that can be called, and its signature."""

    name: Text
    inputs: list[TensorEntry]
    outputs: list[TensorEntry]

    def to_signature(self) -> Signature:
        """Gives the signature as the runtime has it."""
        return Signature(tuple(e.to_spec() for e in self.inputs), tuple(e.to_spec() for e in self.outputs))


class RuntimeEntry(_Entry):
    """A runtime that must be installed, and what brought it when the artifact was made."""

    type_key: Text
    distribution: Text
    version: Text
    payload_format: Annotated[int, Field(ge=1)]


class ModuleEntry(_Entry):
    """A runtime module: its payload, native code or not, is the member ``modules/<index>/payload``."""

    type_key: Text
    functions: list[Text]
    native: bool
    digest: Digest


class ConstantEntry(_Entry):
    """A constant tensor: its bytes are the member ``constants/<digest>``."""

    dtype: str
    shape: Annotated[list[Size], Field(max_length=_MAX_RANK)]

    @field_validator("dtype")
    @classmethod
    def _check_dtype(cls, value: str) -> str:
        return TensorEntry._check_dtype(value)

    @field_validator("shape")
    @classmethod
    def _check_shape(cls, value: list[int]) -> list[int]:
        # numpy refuses such arrays even where another size is zero.
        if math.prod(size for size in value if size) >= _MAX_ELEMENTS:
            raise ValueError("too many elements")
        return value

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return dtype_info(self.dtype).itemsize * math.prod(self.shape)


class Manifest(_Entry):
    """The whole manifest.

    Attributes:
        format: always ``"byoc"``.
        format_version: version of the artifact format.
        core_version: the byoc-core that wrote it.
        functions: what can be called, in order.
        runtimes: what must be installed, in order of type key.
        modules: the runtime modules, in the order in which the program looks for its externs.
        constants: by digest.
        program: SHA-256 of the member ``program``.
        report: the offload report, as data.
    """

    format: Literal["byoc"]
    format_version: Annotated[int, Field(ge=1)]
    core_version: Text
    functions: list[FunctionEntry]
    runtimes: list[RuntimeEntry]
    modules: list[ModuleEntry]
    constants: dict[Digest, ConstantEntry]
    program: Digest
    report: dict[str, JsonValue]

    def member_names(self) -> set[str]:
        """Gives the names of the members that an artifact of this manifest has."""
        return {
            "manifest.json",
            "program",
            *(f"constants/{digest}" for digest in self.constants),
            *(f"modules/{index}/payload" for index in range(len(self.modules))),
        }


def encode_manifest(manifest: Manifest) -> bytes:
    """Gives the JSON form; equal manifests have equal bytes."""
    data = manifest.model_dump(mode="json")
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Reads a manifest.

    Raises:
        ArtifactError: it is no manifest, or is of a newer format version.
    """
    place = f"{where}, member manifest.json"
    if len(data) > MAX_NBYTES:
        raise ArtifactError(place, "is too large", got=f"{len(data)} bytes", expected=f"at most {MAX_NBYTES}")
    try:
        raw = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(place, "is not JSON text") from error
    check_version(raw, where)
    try:
        return Manifest.model_validate(raw)
    except (ValidationError, RecursionError) as error:
        raise ArtifactError(place, f"is malformed: {_first_problem(error)}") from error


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def check_version(raw: Any, where: str) -> None:
    """Raises :class:`ArtifactError` where a parsed manifest is of a newer format version than this core reads."""
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        maker = raw.get("core_version")
        raise ArtifactError(
            where,
            f"made by byoc-core {maker if isinstance(maker, str) else 'of an unknown version'}"
            f" in artifact format {version}, which this byoc-core cannot read",
            expected=f"format {FORMAT_VERSION} or older",
            hint="pip install -U byoc-core",
        )


def _first_problem(error: ValidationError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'document'}: {first['msg']}"
