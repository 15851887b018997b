"""The inputs and outputs of a session: names, dtypes, sizes and forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc_core.dims import Dim, DimExpr, symbols_of
from byoc_core.runtime.drawn_inputs import draw_input
from byoc_core.runtime.module import Signature, TensorSpec
from byoc_core.runtime.value_forms import MAPS, OPTIONAL, SUFFIXES

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable

__all__ = ["ValueInfo", "values_of", "values_of_function"]

_SUFFIXES = tuple({suffix for suffixes in SUFFIXES.values() for suffix in suffixes if suffix})


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """An input or an output of a session.

    Attributes:
        name: the name in the model.
        dtype: the name of the dtype of the elements, such as ``"float32"``; ``"string"`` for strings.
        shape: the sizes, integers or expressions of symbols; ``None`` for a sequence, a map and maps.
        form: ``"tensor"``, or another form of :data:`byoc_core.runtime.value_forms.SUFFIXES`: ``"strings"``,
            ``"sequence"``, ``"map"``, ``"maps"`` and so on, or one of these behind ``"optional "``.
        specs: the arrays of the value in the compiled model: one for a tensor.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    form: str = "tensor"
    specs: tuple[TensorSpec, ...] = field(default=(), repr=False)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbolic sizes, sorted: each call chooses these sizes."""
        dims = () if self.shape is None else self.shape
        return tuple(sorted({name for dim in dims if isinstance(dim, DimExpr) for name in symbols_of(dim)}))

    def draw(self, generator: np.random.Generator, sizes: Mapping[str, int]) -> Any:
        """Return a random input: floats are standard normal, integers and bools 0 or 1.

        Strings are single letters, a sequence holds an array with sizes of 1, a map is empty, an optional value is
        absent.

        Args:
            generator: the source of random numbers.
            sizes: the size of each symbol of the shape.

        Raises:
            CallError: an array of these sizes is too large.
        """
        if self.form.startswith(OPTIONAL):
            return None
        if self.form == "strings":
            lengths = draw_input(generator, self.specs[1], sizes)
            return np.full(lengths.shape, "a", object)
        if self.form in ("sequence", "sequence of strings"):
            rank = self.specs[-1].shape[1]
            shape = (1,) * (rank if isinstance(rank, int) else 0)
            if self.form == "sequence of strings":
                return [np.full(shape, "a", object)]
            return [draw_input(generator, TensorSpec(self.name, self.specs[0].dtype, shape), {})]
        if self.form in MAPS:
            return {}
        return draw_input(generator, self.specs[0], sizes)

    def __str__(self) -> str:
        if self.form in ("tensor", "strings"):
            kind = self.dtype
        else:
            kind = self.form if self.dtype == "string" else f"{self.form} of {self.dtype}"
        return f"{self.name}: {kind}" + ("" if self.shape is None else f"[{', '.join(map(str, self.shape))}]")


def values_of_function(executable: Executable, function: str) -> tuple[tuple[ValueInfo, ...], tuple[ValueInfo, ...]]:
    """Return the inputs and outputs of a function of a compiled model.

    The report of the compilation is read only if a name may belong to a value of another form than a tensor.

    Raises:
        CallError: there is no such function.
    """
    signature = executable.signature(function)
    found: Any = None
    if any(spec.name.endswith(_SUFFIXES) for spec in (*signature.inputs, *signature.outputs)):
        forms = executable.report_data.get("value_forms")
        found = forms.get(function) if isinstance(forms, Mapping) else None
    return values_of(signature, found if isinstance(found, Mapping) else {})


def values_of(signature: Signature, forms: Mapping[str, Any]) -> tuple[tuple[ValueInfo, ...], tuple[ValueInfo, ...]]:
    """Return the inputs and outputs of a function.

    Args:
        signature: the arrays of the function.
        forms: ``input_forms`` and ``output_forms``, pairs of a name and a form. Pairs that do not fit the signature are
            ignored: they come from a report, which may be a stranger's.
    """
    inputs, outputs = (
        tuple(_gathered(specs, dict(_pairs(forms.get(key)))))
        for specs, key in ((signature.inputs, "input_forms"), (signature.outputs, "output_forms"))
    )
    return inputs, outputs


def _pairs(items: Any) -> Iterable[tuple[str, str]]:
    for item in items if isinstance(items, list | tuple) else ():
        if isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(text, str) for text in item):
            yield item[0], item[1]


def _gathered(specs: Sequence[TensorSpec], forms: Mapping[str, str]) -> Iterable[ValueInfo]:
    """Yield the values of consecutive arrays."""
    names = [spec.name for spec in specs]
    starts = {name + suffixes[0]: name for name, form in forms.items() if (suffixes := SUFFIXES.get(form))}
    index = 0
    while index < len(specs):
        name = starts.get(names[index], names[index])
        form = forms[name] if name in forms and names[index] in starts else "tensor"
        count = len(SUFFIXES[form])
        parts = tuple(specs[index : index + count])
        if [part.name for part in parts] != [name + suffix for suffix in SUFFIXES[form]] or not _fits(form, parts):
            name, form, parts = names[index], "tensor", (specs[index],)
        yield _described(name, form, parts)
        index += len(parts)


def _fits(form: str, parts: Sequence[TensorSpec]) -> bool:
    """Return whether arrays have the dtypes and ranks of a form, as far as packing and unpacking rely on these."""
    if form.startswith(OPTIONAL):
        return parts[0].dtype == "bool" and not parts[0].shape and _fits(form.removeprefix(OPTIONAL), parts[1:])
    if form in ("strings", "maps by string"):
        return _are_strings(parts)
    if form in MAPS:
        count = 2 if form.endswith("by string") else 1
        return all(_is_vector_of_map(vector) for vector in (parts[:count], parts[count:]))
    if form in ("sequence", "sequence of strings"):
        *elements, shapes = parts
        has_elements = len(elements[-1].shape) == 1 and (form == "sequence" or _are_strings(elements))
        return has_elements and shapes.dtype == "int64" and len(shapes.shape) == 2
    return True


def _is_vector_of_map(parts: Sequence[TensorSpec]) -> bool:
    return len(parts[-1].shape) == 1 and (len(parts) == 1 or _are_strings(parts))


def _are_strings(parts: Sequence[TensorSpec]) -> bool:
    return parts[0].dtype == "uint8" and len(parts[0].shape) == 1 and parts[1].dtype == "int64"


def _described(name: str, form: str, parts: tuple[TensorSpec, ...]) -> ValueInfo:
    inner = form.removeprefix(OPTIONAL)
    values = parts[1:] if form.startswith(OPTIONAL) else parts
    if inner == "strings":
        return ValueInfo(name, "string", values[1].shape, form, parts)
    if inner == "tensor":
        return ValueInfo(name, values[0].dtype, values[0].shape, form, parts)
    if inner == "sequence of strings" or inner.startswith("map of strings"):
        return ValueInfo(name, "string", None, form, parts)
    return ValueInfo(
        name, values[-1].dtype if inner.startswith("map") else values[0].dtype if values else "", None, form, parts
    )
