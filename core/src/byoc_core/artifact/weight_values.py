"""New values of swappable weights: checks, and the constants of the program with other values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from byoc_core.artifact.weight_table import Derivation, FixedWeightEntry, Weight, WeightTable, require_weights
from byoc_core.digest import digest_of
from byoc_core.dtypes import dtype_name, to_numpy
from byoc_core.errors import ArtifactError, ExecutionError, IRTypeError, WeightsError, near_names
from byoc_core.runtime.aligned_arrays import aligned_copy, aligned_empty
from byoc_core.runtime.module import NDArray, PackedFunction
from byoc_core.vm.program import ConstantRef

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable

__all__ = ["ReplacedWeights", "check_values", "cited_digests", "executable_with_weights", "replace_weights"]

_EXECUTABLE = "executable"


@dataclass(frozen=True)
class ReplacedWeights:
    """The constants of a program for other values of weights.

    Attributes:
        table: the table with the digests of the new values.
        constants: the constants of the program, in order.
        arrays: the new values by digest: of weights, and of constants computed from weights.
    """

    table: WeightTable
    constants: tuple[ConstantRef, ...]
    arrays: Mapping[str, NDArray]


def replace_weights(
    table: WeightTable,
    constants: Sequence[ConstantRef],
    values: Mapping[str, npt.ArrayLike],
    find_stored: Callable[[str], NDArray],
    find_function: Callable[[str], PackedFunction],
    where: str,
) -> ReplacedWeights:
    """Return the constants of a program for new values of weights.

    Only the derivations of replaced weights run.

    Args:
        table: the weights of the program.
        constants: the constants of the program.
        values: the new values, by name.
        find_stored: returns the present value of a digest.
        find_function: returns a derivation's function by name.
        where: the name of the executable in errors.

    Raises:
        WeightsError: a weight is unknown, not swappable, or a value is of another dtype or shape; or a derivation
            fails on the values.
        ArtifactError: a derivation is not of the form stated by the table.
    """
    arrays = {name: _contiguous(value) for name, value in check_values(table, values, where).items()}
    digests = {name: digest_of(array) for name, array in arrays.items()}
    weights = tuple(replace(weight, digest=digests.get(weight.name, weight.digest)) for weight in table.weights)
    added = {digests[name]: array for name, array in arrays.items()}
    changed = dict(enumerate(constants))
    for weight in weights:
        for number in weight.constants:
            changed[number] = _replaced(changed[number], weight.digest, weight.dtype, weight.shape, where)
    for derivation in table.derivations:
        inputs = [weights[number] for number in derivation.inputs]
        if not any(weight.name in arrays for weight in inputs):
            continue
        operands = [added[w.digest] if w.digest in added else find_stored(w.digest) for w in inputs]
        results = _derive(derivation, find_function(derivation.function), operands, inputs, changed, where)
        for numbers, result in zip(derivation.outputs, results, strict=True):
            digest = digest_of(result)
            added[digest] = result
            for number in numbers:
                shape = tuple(map(int, result.shape))
                changed[number] = _replaced(changed[number], digest, dtype_name(result.dtype), shape, where)
    return ReplacedWeights(replace(table, weights=weights), tuple(changed.values()), added)


def cited_digests(table: WeightTable, constants: Iterable[ConstantRef]) -> set[str]:
    """Return the digests of all constants of an executable with swappable weights."""
    return {
        *table.module_constants,
        *(weight.digest for weight in table.weights),
        *(reference.digest for reference in constants),
    }


def check_values(table: WeightTable, values: Mapping[str, npt.ArrayLike], where: str) -> Mapping[str, NDArray]:
    """Check the names, dtypes and shapes of new values; return the values of swappable weights as arrays.

    A weight that is not swappable may keep its value.

    Raises:
        WeightsError: the executable was compiled without swappable weights; a weight is unknown or not swappable, or a
            value is of another dtype or shape.
    """
    require_weights(table, where)
    weights = {weight.name: weight for weight in table.weights}
    fixed = {weight.name: weight for weight in table.fixed}
    arrays: dict[str, NDArray] = {}
    for name, value in values.items():
        if name not in weights and name not in fixed:
            raise WeightsError(where, f"has no weight `{name}`", hint=_hint(name, (*weights, *fixed)))
        array, dtype = _to_array(name, value, where)
        if name in weights:
            _check_type(weights[name], array, dtype, where)
            arrays[name] = array
        elif not fixed[name].digest:
            _check_type(fixed[name], array, dtype, where)
        elif digest_of(array) != fixed[name].digest:
            raise _refusal(fixed[name], where)
    return arrays


def _hint(name: str, names: Sequence[str]) -> str:
    """Return the next step for an unknown name."""
    of_entries = [found for found in names if found.endswith(f":{name}")]
    if of_entries:
        return f"The weights of several entries differ: name {' or '.join(f'`{found}`' for found in of_entries)}."
    return near_names(name, names) or "`byoc weights list` names all weights."


def _to_array(name: str, value: npt.ArrayLike, where: str) -> tuple[NDArray, str]:
    """Return a value as an array, and the dtype."""
    try:
        array: NDArray = np.asarray(value)
        return array, dtype_name(array.dtype)
    except IRTypeError as error:
        problem = f"the new value of weight `{name}` has a dtype unknown to byoc"
        raise WeightsError(where, problem, got=str(array.dtype)) from error
    except ValueError as error:
        raise WeightsError(where, f"the new value of weight `{name}` is no array") from error


def _check_type(weight: Weight | FixedWeightEntry, value: NDArray, dtype: str, where: str) -> None:
    got = dtype, tuple(value.shape)
    if got != (weight.dtype, weight.shape):
        raise WeightsError(
            where,
            f"the new value of weight `{weight.name}` has another type",
            got=f"{got[0]}{list(got[1])}",
            expected=f"{weight.dtype}{list(weight.shape)}",
        )


def _refusal(weight: FixedWeightEntry, where: str) -> WeightsError:
    return WeightsError(
        where,
        f"weight `{weight.name}` cannot be swapped: the weight {weight.reason}",
        hint="Compile the model again with the new value.",
    )


def _contiguous(value: NDArray) -> NDArray:
    """Return a value as an array that compiled code reads in place."""
    array = value if value.flags.c_contiguous and value.flags.aligned else np.array(value, order="C")
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def _check_constant(reference: ConstantRef, dtype: str, shape: tuple[int, ...], where: str) -> None:
    if (reference.dtype, reference.shape) != (dtype, shape):
        raise ArtifactError(
            f"{where}, table of weights",
            "gives a constant a value of another type",
            got=f"{dtype}{list(shape)}",
            expected=f"{reference.dtype}{list(reference.shape)}",
        )


def _replaced(reference: ConstantRef, digest: str, dtype: str, shape: tuple[int, ...], where: str) -> ConstantRef:
    _check_constant(reference, dtype, shape, where)
    return replace(reference, digest=digest)


def _derive(
    derivation: Derivation,
    function: PackedFunction,
    operands: Sequence[NDArray],
    inputs: Sequence[Weight],
    constants: Mapping[int, ConstantRef],
    where: str,
) -> Sequence[NDArray]:
    """Run a derivation.

    Raises:
        ArtifactError: the function has another signature, or a result has another type than a constant.
        WeightsError: the function fails on the values, or there is no memory for the results.
    """
    signature = function.signature
    expected = [(weight.dtype, weight.shape) for weight in inputs]
    sizes = [dim for spec in (signature.outputs if signature else ()) for dim in spec.shape]
    if (
        signature is None
        or [(spec.dtype, spec.shape) for spec in signature.inputs] != expected
        or len(signature.outputs) != len(derivation.outputs)
        or not all(isinstance(size, int) for size in sizes)
    ):
        raise ArtifactError(f"{where}, derivation `{derivation.function}`", "has another signature than in the table")
    shapes = [tuple(int(str(dim)) for dim in spec.shape) for spec in signature.outputs]
    for numbers, spec, shape in zip(derivation.outputs, signature.outputs, shapes, strict=True):
        for number in numbers:
            _check_constant(constants[number], spec.dtype, shape, where)
    try:
        results = [aligned_empty(shape, to_numpy(s.dtype)) for s, shape in zip(signature.outputs, shapes, strict=True)]
        function(*operands, *results)
    except ExecutionError as error:
        names = ", ".join(f"`{weight.name}`" for weight in inputs)
        raise WeightsError(where, f"a constant cannot be computed from {names}: {error}") from error
    for result in results:
        result.flags.writeable = False
    return results


def executable_with_weights(
    executable: Executable, values: Mapping[str, npt.ArrayLike], *, copies: bool = True
) -> Executable:
    """Return an executable with other values of weights; see :meth:`Executable.with_weights`.

    Args:
        executable: the executable; constants of replaced weights may be missing.
        values: the new values, by name.
        copies: whether the values are copied, because the caller may change the arrays.
    """
    from byoc_core.artifact.executable import Executable

    table = executable.weights
    checked = check_values(table, values, _EXECUTABLE)
    owned = {name: aligned_copy(array) if copies else array for name, array in checked.items()}
    replaced = replace_weights(
        table,
        executable.program.constants,
        owned,
        executable.constants.__getitem__,
        lambda name: _find_function(executable, name),
        _EXECUTABLE,
    )
    digests = cited_digests(replaced.table, replaced.constants)
    constants = {
        digest: replaced.arrays[digest] if digest in replaced.arrays else executable.constants[digest]
        for digest in sorted(digests)
    }
    return Executable(
        replace(executable.program, constants=replaced.constants),
        executable.modules,
        constants,
        executable.report_data,
        is_own=executable.is_own,
        request=executable.request_data,
        weights=replaced.table,
    )


def _find_function(executable: Executable, name: str) -> PackedFunction:
    for module in executable.modules:
        if name in module.function_names:
            return module.get_function(name)
    raise ArtifactError("executable, table of weights", f"names a missing derivation `{name}`")
