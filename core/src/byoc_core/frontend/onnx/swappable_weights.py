"""Swappable weights during import: initializers that become parameters with known values.

An importer of a node may read an array. If the array is a chosen weight, the weight is *pinned*: its value becomes part
of the module, and the reader is the reason why the weight cannot be swapped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from byoc_core.digest import digest_of
from byoc_core.dtypes import dtype_name, is_float
from byoc_core.errors import OptionsError, near_names
from byoc_core.ir.module import IRModule, Var
from byoc_core.ir.weights import FixedWeight, declare_weights
from byoc_core.opset.types import TensorType
from byoc_core.transform.bind_params import BindParams

__all__ = ["SwappableWeights", "WeightChoice", "fitting_names"]

WeightChoice = bool | Sequence[str]
"""Whether weights are swappable, or patterns of the names of swappable weights."""

Array = npt.NDArray[np.generic]


def fitting_names(pattern: str, names: Collection[str]) -> tuple[str, ...]:
    """Return the names that fit a pattern: the pattern itself if it is a name, else ``*`` and ``?`` fit any text."""
    if pattern in names:
        return (pattern,)
    literal = pattern.replace("[", "[[]")
    return tuple(name for name in names if fnmatchcase(name, literal))


def _choose(patterns: Sequence[str], declared: Collection[str]) -> frozenset[str]:
    """Return the names of chosen weights.

    Raises:
        OptionsError: a pattern fits no weight.
    """
    fitting_weights: set[str] = set()
    for pattern in patterns:
        fitting = fitting_names(pattern, declared)
        if not fitting:
            hint = near_names(pattern, declared)
            raise OptionsError("swappable_weights", f"the model has no weight `{pattern}`", hint=hint or None)
        fitting_weights.update(fitting)
    return frozenset(fitting_weights)


class SwappableWeights:
    """The swappable weights of a model under import.

    Args:
        choice: ``True`` for all tensors of floats but scalars; or names and patterns, see :func:`fitting_names`.
        declared: dtype and shape of all initializers of the model's graph, by name.

    Raises:
        OptionsError: a name of ``choice`` fits no initializer.
    """

    def __init__(self, choice: WeightChoice, declared: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
        if isinstance(choice, str):
            raise OptionsError("swappable_weights", "is a single text", got=repr(choice), expected="a list of names")
        self._is_off = not choice
        self._chosen_names = None if isinstance(choice, bool) else _choose(choice, declared)
        self._declared = declared
        self._values: dict[str, Array] = {}
        self._arrays: dict[str, Array] = {}
        self._owners: dict[Var, str] = {}
        self._reasons: dict[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the weights that became parameters, in the order of the parameters."""
        return tuple(self._arrays)

    def enter(self, name: str, array: Array, new_param: Callable[[str, TensorType], Var]) -> Var | None:
        """Return a new parameter for an initializer, ``None`` for an initializer that stays a constant."""
        if self._is_off:
            return None
        type_ = TensorType(tuple(map(int, array.shape)), dtype_name(array.dtype))
        reason = self._reason_against(name, type_)
        self._values[name] = array
        if reason is not None:
            self._reasons[name] = reason
            return None
        param = new_param(name, type_)
        self._arrays[name] = array
        self._owners[param] = name
        return param

    def _reason_against(self, name: str, type_: TensorType) -> str | None:
        if self._chosen_names is not None:
            return None if name in self._chosen_names else "is not chosen by `swappable_weights`"
        if not is_float(type_.dtype):
            return f"has dtype {type_.dtype}: only weights of floats are chosen without a name"
        return None if type_.shape else "is a scalar: only tensors are chosen without a name"

    def follow(self, source: Var, captured: Var) -> None:
        """Note that a parameter of a nested function has the value of a weight, if ``source`` has."""
        if source in self._owners:
            self._owners[captured] = self._owners[source]

    def owner(self, value: object) -> str | None:
        """Return the name of the weight behind a value, if any."""
        return self._owners.get(value) if isinstance(value, Var) else None

    def read(self, value: Var, reader: str) -> Array | None:
        """Return the array of a weight, and pin the weight; ``None`` for any other value."""
        name = self._owners.get(value)
        if name is None:
            return None
        self._reasons.setdefault(name, f"was read during import by {reader}")
        return self._arrays[name]

    def declare(self, module: IRModule) -> IRModule:
        """Return the imported module with its weights declared, and pinned weights bound as constants.

        Args:
            module: the imported module; each weight is an input of ``main``.
        """
        if self._is_off:
            return module
        pinned = {name: array for name, array in self._arrays.items() if name in self._reasons}
        if pinned:
            module = BindParams(pinned)(module)
        free = {name: array for name, array in self._arrays.items() if name not in self._reasons}
        fixed = [
            FixedWeight(name, *type_, self._reasons.get(name, "is not used by the model"), self._digest(name))
            for name, type_ in self._declared.items()
            if name not in free
        ]
        return declare_weights(module, free, fixed=fixed)

    def _digest(self, name: str) -> str:
        return digest_of(self._values[name]) if name in self._values else ""
