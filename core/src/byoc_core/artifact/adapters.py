"""Low-rank adapters (LoRA): changes ``scale * B @ A`` of swappable weights.

Names follow PEFT: ``<module>.lora_A.weight`` of shape ``(rank, inputs)`` and ``<module>.lora_B.weight`` of shape
``(outputs, rank)`` change the weight ``<module>.weight``; a prefix ``base_model.model.`` is left out.

Source: E. Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2021, section 4.1.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from byoc_core.artifact.float_rounding import round_floats
from byoc_core.artifact.tensor_files import read_tensors
from byoc_core.artifact.weight_table import Weight, WeightTable, require_weights
from byoc_core.dtypes import dtype_name, is_float
from byoc_core.errors import IRTypeError, WeightsError, near_names
from byoc_core.runtime.json_records import parse_json
from byoc_core.runtime.module import NDArray

__all__ = ["Adapter", "adapted_values", "load_adapter", "open_adapters"]

_CONFIG = "adapter_config.json"
_FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<factor>[AB])(\.(?P<adapter>[^.]+))?\.weight")
_PREFIX = "base_model.model."
_MAX_RANK = 2**31 - 1
_UNSUPPORTED = (
    "use_dora",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "use_qalora",
    "alora_invocation_tokens",
)


@dataclass(frozen=True, eq=False)
class Adapter:
    """A low-rank adapter.

    Attributes:
        tensors: the factors by name.
        scale: the factor of all changes: the quotient of alpha and rank for an adapter of PEFT.
        names: the name of the weight by the name of the module, for weights of other names than ``<module>.weight``.
        transposed: whether the weights have shape ``(inputs, outputs)``. By default, a weight ``<module>.weight`` has
            shape ``(outputs, inputs)``, and the shape of a weight in ``names`` decides, unless square.
        source: the name of the adapter in errors.

    Raises:
        WeightsError: ``scale`` is not finite, or ``names`` names a module twice.
    """

    tensors: Mapping[str, NDArray]
    scale: float
    names: Mapping[str, str] = field(default_factory=dict)
    transposed: bool | None = None
    source: str = "adapter"

    def __post_init__(self) -> None:
        if _to_finite(self.scale) is None:
            raise WeightsError(self.source, "has a scale that is not finite", got=str(self.scale)[:40])
        object.__setattr__(self, "tensors", dict(self.tensors))  # a mapping of any class, perhaps without pickling
        object.__setattr__(self, "names", _without_prefixes(self.names, self.source))


def load_adapter(
    path: str | os.PathLike[str],
    *,
    scale: float | None = None,
    names: Mapping[str, str] | None = None,
    transposed: bool | None = None,
) -> Adapter:
    """Load an adapter from a .safetensors or .npz file.

    Args:
        path: the file.
        scale: see :class:`Adapter`; by default from the file ``adapter_config.json`` in the same folder. A stated scale
            replaces the scale of this file alone.
        names: see :class:`Adapter`.
        transposed: see :class:`Adapter`; by default ``fan_in_fan_out`` of ``adapter_config.json`` counts.

    Raises:
        WeightsError: the file is no file of tensors, ``scale`` is missing or not finite, or the configuration is of
            another kind of adapter.
        OSError: the file cannot be read.
    """
    where = f"adapter `{os.fspath(path)}`"
    tensors = read_tensors(path).tensors
    config = _read_config(Path(path).parent / _CONFIG)
    if config is not None:
        scale = config.scale() if scale is None else scale
        transposed = True if transposed is None and config.is_transposed else transposed
    if scale is None:
        raise WeightsError(where, "has no scale", hint=f"Pass scale, or put `{_CONFIG}` beside the file.")
    return Adapter(tensors, scale, names or {}, transposed, where)


def open_adapters(adapters: Iterable[Adapter | str | os.PathLike[str]]) -> tuple[Adapter, ...]:
    """Return adapters; paths are loaded by :func:`load_adapter`."""
    return tuple(item if isinstance(item, Adapter) else load_adapter(item) for item in adapters)


def adapted_values(
    table: WeightTable, find_stored: Callable[[str], NDArray], adapters: Sequence[Adapter], where: str
) -> dict[str, NDArray]:
    """Return the values of the weights changed by adapters, by name.

    Products and sums are computed in float64, and rounded once to the dtype of the weight.

    Args:
        table: the weights.
        find_stored: returns the present value of a digest.
        adapters: the adapters; changes of one weight by several adapters are added in this order.
        where: the name of the executable in errors.

    Raises:
        WeightsError: the executable was compiled without swappable weights; a tensor is no factor; a factor is missing
            or does not fit; the tensors are of several adapters; or a weight is unknown, not swappable, or not of
            floats.
    """
    require_weights(table, where)
    sums: dict[str, NDArray] = {}
    weights = {weight.name: weight for weight in table.weights}
    with np.errstate(all="ignore"):
        for adapter in adapters:
            for name, change in _changes(adapter, table, weights, where).items():
                start = sums[name] if name in sums else find_stored(weights[name].digest).astype(np.float64)
                sums[name] = start + change
    return {name: round_floats(array, weights[name].dtype) for name, array in sums.items()}


def _changes(adapter: Adapter, table: WeightTable, weights: Mapping[str, Weight], where: str) -> Mapping[str, NDArray]:
    """Return the change of each weight by an adapter."""
    factors = _factors(adapter)
    names = adapter.names
    if unknown := sorted(names.keys() - factors.keys()):
        hint = near_names(unknown[0], factors) or None
        raise WeightsError(adapter.source, f"has no module `{unknown[0]}`", hint=hint)
    changes: dict[str, NDArray] = {}
    for module, pair in factors.items():
        if len(pair) != 2:
            missing = next(iter({"A", "B"} - pair.keys()))
            raise WeightsError(adapter.source, f"module `{module}` has no factor lora_{missing}")
        weight = _find_weight(adapter, module, names.get(module), table, weights, where)
        if weight.name in changes:
            raise WeightsError(adapter.source, f"two modules change weight `{weight.name}`")
        if not is_float(weight.dtype):
            problem = f"cannot change weight `{weight.name}` of dtype {weight.dtype}"
            raise WeightsError(adapter.source, problem, expected="a weight of floats")
        wide_a, wide_b = (pair[factor].astype(np.float64) for factor in "AB")
        if wide_a.shape[0] != wide_b.shape[1]:
            raise WeightsError(
                adapter.source,
                f"the factors of module `{module}` have different ranks",
                got=f"{wide_a.shape[0]} and {wide_b.shape[1]}",
            )
        is_transposed = _is_transposed(adapter, module, weight, (wide_b.shape[0], wide_a.shape[1]), module in names)
        change = adapter.scale * (wide_b @ wide_a)
        changes[weight.name] = change.T if is_transposed else change
    return changes


def _factors(adapter: Adapter) -> Mapping[str, Mapping[str, NDArray]]:
    """Return the factors ``A`` and ``B`` of each module."""
    factors: dict[str, dict[str, NDArray]] = {}
    adapter_names: set[str] = set()
    for name, tensor in adapter.tensors.items():
        match = _FACTOR.fullmatch(name)
        if match is None or tensor.ndim != 2 or not _is_of_floats(tensor):
            raise WeightsError(
                adapter.source,
                f"tensor `{name}` is no factor of a low-rank adapter",
                expected="matrices of floats named <module>.lora_A.weight and <module>.lora_B.weight",
            )
        module, factor = match["module"].removeprefix(_PREFIX), match["factor"]
        pair = factors.setdefault(module, {})
        adapter_names.update({match["adapter"]} - {None})
        problem = None
        if len(adapter_names) > 1:
            problem = f"holds several adapters: {', '.join(map(repr, sorted(adapter_names)))}"
        elif factor in pair:
            problem = f"holds several adapters: tensor `{name}` is another factor lora_{factor} of module `{module}`"
        if problem is not None:
            raise WeightsError(adapter.source, problem, hint="Make one `Adapter` of the tensors of each.")
        pair[factor] = tensor
    return factors


def _is_of_floats(tensor: NDArray) -> bool:
    try:
        return is_float(dtype_name(tensor.dtype))
    except IRTypeError:
        return False


def _without_prefixes(names: Mapping[str, str], where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for module, name in names.items():
        if found.setdefault(module.removeprefix(_PREFIX), name) != name:
            raise WeightsError(where, f"names two weights for module `{module.removeprefix(_PREFIX)}`")
    return found


def _to_finite(number: float) -> float | None:
    """Return a number as float64; ``None`` if the number has no finite value there."""
    try:
        converted = float(number)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def _find_weight(
    adapter: Adapter,
    module: str,
    name: str | None,
    table: WeightTable,
    weights: Mapping[str, Weight],
    where: str,
) -> Weight:
    name = f"{module}.weight" if name is None else name
    if name in weights:
        return weights[name]
    for fixed in table.fixed:
        if fixed.name == name:
            raise WeightsError(
                where, f"weight `{name}` of {adapter.source} cannot be changed: the weight {fixed.reason}"
            )
    hint = near_names(name, weights) or f"Name the weight of module `{module}`."
    raise WeightsError(where, f"has no weight `{name}` for {adapter.source}", hint=hint)


def _is_transposed(adapter: Adapter, module: str, weight: Weight, shape: tuple[int, int], is_named: bool) -> bool:
    """Return whether the weight of a module has shape ``(inputs, outputs)``; ``shape`` is ``(outputs, inputs)``."""
    is_transposed = adapter.transposed
    if is_transposed is None and is_named:
        if shape[0] == shape[1] and weight.shape == shape:
            raise WeightsError(
                adapter.source,
                f"the square weight `{weight.name}` of module `{module}` may be transposed",
                hint="State `transposed`.",
            )
        is_transposed = weight.shape == shape[::-1]
    expected = shape[::-1] if is_transposed else shape
    if weight.shape != expected:
        raise WeightsError(
            adapter.source,
            f"module `{module}` does not fit weight `{weight.name}`",
            got=f"a change of shape {list(expected)}",
            expected=f"{list(weight.shape)}",
        )
    return bool(is_transposed)


@dataclass(frozen=True)
class _Config:
    """The configuration of an adapter of PEFT: a supported kind of adapter."""

    where: str
    content: Mapping[str, Any]

    @property
    def is_transposed(self) -> bool:
        """Whether the weights have shape ``(inputs, outputs)``."""
        return self._flag("fan_in_fan_out")

    def scale(self) -> float:
        """Return the factor of the changes."""
        alpha: Any = self.content.get("lora_alpha")
        rank: Any = self.content.get("r")
        is_number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
        if not is_number or type(rank) is not int or not 1 <= rank <= _MAX_RANK:
            raise WeightsError(self.where, "states no numbers `lora_alpha` and `r`")
        number = _to_finite(alpha)
        if number is None:
            raise WeightsError(self.where, "states a `lora_alpha` that is not finite")
        return number / (math.sqrt(rank) if self._flag("use_rslora") else rank)

    def _flag(self, key: str) -> bool:
        value = self.content.get(key)
        if value is not None and type(value) is not bool:
            raise WeightsError(self.where, f"states a `{key}` that is neither true nor false")
        return bool(value)


def _read_config(path: Path) -> _Config | None:
    """Return the configuration in a file; ``None`` if the file does not exist."""
    if not path.is_file():
        return None
    where = f"file `{path}`"
    try:
        content: Any = parse_json(path.read_bytes())
    except ValueError as error:
        raise WeightsError(where, "is not JSON text") from error
    if not isinstance(content, dict):
        raise WeightsError(where, "is not an object")
    kind = content.get("peft_type")
    if kind not in (None, "LORA"):
        raise WeightsError(where, "is of another kind of adapter", got=str(kind)[:40], expected="LORA")
    for key in _UNSUPPORTED:
        if content.get(key):
            raise WeightsError(where, f"states `{key}`, which is not supported", hint="Merge the adapter by PEFT.")
    return _Config(where, content)
