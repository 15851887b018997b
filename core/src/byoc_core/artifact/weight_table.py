"""The table of an executable's swappable weights: where each weight goes, by constant of the program.

A constant of the program is the value of a weight, or is computed from weights by a *derivation*: a function of one of
the executable's modules, run by the host. The table is a field of the offload report in the manifest: readers of the
format ignore unknown fields there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from byoc_core.dtypes import dtype_info
from byoc_core.errors import ArtifactError, WeightsError
from byoc_core.runtime.json_records import DTYPE, SIZE, MisfitError, integer, list_of, record, text, to_json

__all__ = [
    "Derivation",
    "FixedWeightEntry",
    "Weight",
    "WeightTable",
    "decode_weights",
    "encode_weights",
    "require_weights",
]


@dataclass(frozen=True, slots=True)
class Weight:
    """A swappable weight.

    Attributes:
        name: the name in the model; ``function:name`` if weights of several functions have the name and differ.
        dtype: the dtype.
        shape: the shape.
        digest: the digest of the value.
        constants: the constants of the program with this value, by number.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str
    constants: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of the value."""
        return dtype_info(self.dtype).itemsize * math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Derivation:
    """A computation of constants from weights.

    Attributes:
        function: the name of the function, in a module of the executable.
        inputs: the weights passed to the function, by number.
        outputs: for each result of the function, the constants of the program with this value, by number.
    """

    function: str
    inputs: tuple[int, ...]
    outputs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class FixedWeightEntry:
    """A weight of the model that is not swappable.

    Attributes:
        name: the name in the model.
        dtype: the dtype.
        shape: the shape.
        reason: the reason, without subject: ``"is a scalar"``.
        digest: the digest of the value; empty if no value changes a result.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    reason: str
    digest: str


@dataclass(frozen=True, slots=True)
class WeightTable:
    """The weights of an executable.

    Attributes:
        weights: the swappable weights.
        derivations: the computations of constants from weights.
        fixed: the weights of the model that are not swappable.
        module_constants: the digests of all constants cited by modules; a swap keeps these constants.
    """

    weights: tuple[Weight, ...] = ()
    derivations: tuple[Derivation, ...] = ()
    fixed: tuple[FixedWeightEntry, ...] = ()
    module_constants: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.weights or self.fixed)


def require_weights(table: WeightTable, where: str) -> None:
    """Check that an executable was compiled with swappable weights.

    Raises:
        WeightsError: the executable was compiled without.
    """
    if not table:
        hint = "Compile the model with `byoc compile --swappable-weights all`."
        raise WeightsError(where, "was compiled without swappable weights", hint=hint)


def encode_weights(table: WeightTable) -> dict[str, Any]:
    """Return a table as JSON values."""
    content: dict[str, Any] = json.loads(json.dumps(table, default=to_json))
    return content


FindConstant = Callable[[str], tuple[str, tuple[int, ...]] | None]
"""Returns dtype and shape of the constant with a digest; ``None`` if the executable has no such constant."""


def decode_weights(raw: object, num_constants: int, find_constant: FindConstant, where: str) -> WeightTable:
    """Read a table from JSON values.

    Args:
        raw: the JSON values; ``None`` for an executable without swappable weights.
        num_constants: the number of constants of the program.
        find_constant: finds a constant of the executable.
        where: the name of the executable in errors.

    Raises:
        ArtifactError: the table is malformed, or cites a missing constant.
    """
    if raw is None:
        return WeightTable()
    try:
        table = _read_table(raw)
        _check_numbers(table, num_constants)
    except MisfitError as misfit:
        raise ArtifactError(f"{where}, table of weights", f"is malformed: {misfit}") from misfit
    for weight in table.weights:
        if find_constant(weight.digest) != (weight.dtype, weight.shape):
            raise ArtifactError(f"{where}, table of weights", "cites a missing constant", got=weight.digest)
    for digest in table.module_constants:
        if find_constant(digest) is None:
            raise ArtifactError(f"{where}, table of weights", "cites a missing constant", got=digest)
    return table


def _check_numbers(table: WeightTable, num_constants: int) -> None:
    targets = [number for weight in table.weights for number in weight.constants]
    targets += [number for item in table.derivations for output in item.outputs for number in output]
    if len(set(targets)) != len(targets):
        raise MisfitError("Value error, a constant has two sources")
    if any(number >= num_constants for number in targets):
        raise MisfitError("Value error, a constant is not in the program")
    if any(number >= len(table.weights) for item in table.derivations for number in item.inputs):
        raise MisfitError("Value error, a derivation reads an unknown weight")
    names = [weight.name for weight in table.weights]
    if len(set(names)) != len(names):
        raise MisfitError("Value error, two weights have one name")


_NAME = text(min_length=1, max_length=4096)
_DIGEST = text("[0-9a-f]{64}")
_SHAPE = list_of(SIZE, max_length=32)
_NUMBERS = list_of(integer(0))

_read_table = record(
    WeightTable,
    weights=list_of(record(Weight, name=_NAME, dtype=DTYPE, shape=_SHAPE, digest=_DIGEST, constants=_NUMBERS)),
    derivations=list_of(record(Derivation, function=_NAME, inputs=_NUMBERS, outputs=list_of(_NUMBERS))),
    fixed=list_of(
        record(
            FixedWeightEntry,
            name=_NAME,
            dtype=text(max_length=32),
            shape=_SHAPE,
            reason=text(),
            digest=text("|[0-9a-f]{64}"),
        )
    ),
    module_constants=list_of(_DIGEST),
)
