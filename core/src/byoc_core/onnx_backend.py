"""byoc as an ONNX backend, by the interface of ``onnx.backend.base``.

::

    import byoc_core.onnx_backend as backend
    prepared = backend.prepare(onnx.load("model.onnx"), backends=["mynpu"])
    (y,) = prepared.run([x])

The functions of the interface are in the class :class:`OnnxBackend` and in the module itself, where ONNX's tools look
for them: ``onnx.backend.test.BackendTest(byoc_core.onnx_backend, __name__)`` runs ONNX's test suite. Needs the extra
``byoc-core[onnx]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from byoc_core.artifact import Executable
from byoc_core.driver import build
from byoc_core.errors import ByocError, OptionsError, near_names
from byoc_core.frontend.onnx import from_onnx
from byoc_core.runtime.maps import unpack_maps
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.sequences import pack_sequence, unpack_sequence
from byoc_core.runtime.strings import pack_strings, unpack_strings
from byoc_core.vm import VirtualMachine

__all__ = [
    "OnnxBackend",
    "PreparedModel",
    "is_compatible",
    "pack_input",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
    "unpack_output",
]


class PreparedModel(BackendRep):
    """A compiled model, ready for calls.

    Attributes:
        executable: the compiled model.
        input_names: the names of the inputs without initializer, in the model's order.
        output_names: the names of the outputs, in the model's order.
    """

    def __init__(
        self, executable: Executable, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]
    ) -> None:
        self.executable = executable
        self.input_names = tuple(value.name for value in inputs)
        self.output_names = tuple(value.name for value in outputs)
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        self._call = VirtualMachine(executable)["main"]

    def run(self, inputs: Sequence[object] | Mapping[str, object] | object, **kwargs: Any) -> tuple[NDArray, ...]:
        """Return the outputs, in the model's order.

        Args:
            inputs: the inputs in the model's order, or by name; or the only input. A sequence is a list of arrays, an
                absent optional value is ``None``.
            kwargs: of the interface; there are none.

        Raises:
            OptionsError: an input is missing or unknown, or there are ``kwargs``.
            ExecutionError: an input has another dtype or shape than declared, or the model cannot be run on the inputs.
        """
        _refuse("run", kwargs)
        pairs = zip(self._inputs, self._in_order(inputs), strict=True)
        results = self._call(*(array for declared, value in pairs for array in pack_input(declared.type, value)))
        arrays = iter(results if isinstance(results, tuple) else (results,))
        return tuple(unpack_output(declared.type, arrays) for declared in self._outputs)

    def _in_order(self, inputs: object) -> Sequence[object]:
        if not isinstance(inputs, Mapping):
            values: Sequence[object] = inputs if isinstance(inputs, list | tuple) else (inputs,)
            if len(values) != len(self.input_names):
                raise OptionsError(
                    "inputs", "has another number than the model", got=len(values), expected=self._listed()
                )
            return values
        for name in inputs:
            if name not in self.input_names:
                hint = near_names(str(name), self.input_names) or None
                raise OptionsError(
                    "inputs", "names no input of the model", got=name, expected=self._listed(), hint=hint
                )
        missing = [name for name in self.input_names if name not in inputs]
        if missing:
            raise OptionsError("inputs", f"lacks `{'`, `'.join(missing)}`", expected=self._listed())
        return [inputs[name] for name in self.input_names]

    def _listed(self) -> str:
        return f"{len(self.input_names)}: {', '.join(self.input_names)}"


class OnnxBackend(Backend):
    """The interface: models and single nodes are compiled, then run on the processor."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether models run on a device: ``"CPU"``."""
        try:
            found = Device(device)
        except (AttributeError, ValueError):  # an unknown type, or a number that is none
            return False
        return bool(found.type == DeviceType.CPU)

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:  # noqa: ARG003 - the interface
        """Return whether a model can be imported, and runs on the device."""
        try:
            from_onnx(model)
        except ByocError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Compile a model.

        Args:
            model: the model.
            device: ``"CPU"``.
            kwargs: the arguments of :func:`byoc_core.build`: ``backends``, ``options`` and so on.

        Raises:
            OptionsError: another device; see :func:`byoc_core.build` for other reasons.
            FrontendError: the model cannot be imported; see :func:`byoc_core.from_onnx`.
        """
        if not cls.supports_device(device):
            raise OptionsError("device", "is not supported", got=device, expected="CPU")
        weights = {tensor.name for tensor in model.graph.initializer}
        inputs = [value for value in model.graph.input if value.name not in weights]
        return PreparedModel(build(from_onnx(model), **kwargs), inputs, model.graph.output)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[object] | Mapping[str, object],
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,  # noqa: ARG003 - the interface
        **kwargs: Any,
    ) -> tuple[NDArray, ...]:
        """Compile a single node for the types of its inputs, and run it.

        Args:
            node: the node.
            inputs: the inputs present, in the node's order, or by name.
            device: ``"CPU"``.
            outputs_info: of the interface; not needed.
            kwargs: ``opset_version``, by default the newest; and the arguments of :func:`byoc_core.build`.

        Raises:
            OptionsError: a number of inputs other than that of the node; see also :meth:`prepare`.
            FrontendError: the node cannot be imported.
        """
        names = list(dict.fromkeys(filter(None, node.input)))
        values = [inputs[name] for name in names] if isinstance(inputs, Mapping) else list(inputs)
        if len(values) != len(names):
            raise OptionsError("inputs", "has another number than the node", got=len(values), expected=len(names))
        arrays = list(map(np.asarray, values))
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [
                onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in zip(names, arrays, strict=True)
            ],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        newest = {"": onnx.defs.onnx_opset_version(), "ai.onnx.ml": onnx.defs.onnx_ml_opset_version()}
        domain = "" if node.domain == "ai.onnx" else node.domain
        versions = {"": newest[""], domain: kwargs.pop("opset_version", newest.get(domain, 1))}
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid(*item) for item in versions.items()]
        )
        return cls.prepare(model, device, **kwargs).run(arrays)


def pack_input(type_: onnx.TypeProto, value: Any) -> list[NDArray]:
    """Return the arrays of an input of a declared type."""
    if type_.HasField("optional_type"):
        inner = type_.optional_type.elem_type
        absent: Any = [] if inner.HasField("sequence_type") else np.zeros((0,) * _rank(inner), _dtype(inner))
        return [np.array(value is not None), *pack_input(inner, absent if value is None else value)]
    if type_.HasField("sequence_type"):
        inner = type_.sequence_type.elem_type
        rank = _rank(inner) if inner.tensor_type.HasField("shape") or not len(value) else None
        return list(pack_sequence(value, dtype=_dtype(inner), rank=rank))
    if type_.tensor_type.elem_type == onnx.TensorProto.STRING:
        return list(pack_strings(value))
    return [np.asarray(value)]


def unpack_output(type_: onnx.TypeProto, arrays: Iterator[NDArray]) -> Any:
    """Return an output of a declared type: an array, a list of arrays or of maps, or ``None``."""
    if type_.HasField("optional_type"):
        is_present, value = next(arrays), unpack_output(type_.optional_type.elem_type, arrays)
        return value if is_present else None
    if type_.sequence_type.elem_type.HasField("map_type"):
        is_text = type_.sequence_type.elem_type.map_type.key_type == onnx.TensorProto.STRING
        return unpack_maps(*(next(arrays) for _ in range(3 if is_text else 2)))
    if type_.HasField("sequence_type"):
        return unpack_sequence(next(arrays), next(arrays))
    if type_.tensor_type.elem_type == onnx.TensorProto.STRING:
        return unpack_strings(next(arrays), next(arrays))
    return next(arrays)


def _rank(type_: onnx.TypeProto) -> int:
    return len(type_.tensor_type.shape.dim)


def _dtype(type_: onnx.TypeProto) -> np.dtype[Any]:
    return onnx.helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type)


def _refuse(where: str, kwargs: Mapping[str, object]) -> None:
    for name in kwargs:
        raise OptionsError(f"{where}, {name}", "is no argument")


is_compatible = OnnxBackend.is_compatible
"""See :meth:`OnnxBackend.is_compatible`."""
prepare = OnnxBackend.prepare
"""See :meth:`OnnxBackend.prepare`."""
run_model = OnnxBackend.run_model
"""Compile a model and run it: ``prepare(model, device, **kwargs).run(inputs)``."""
run_node = OnnxBackend.run_node
"""See :meth:`OnnxBackend.run_node`."""
supports_device = OnnxBackend.supports_device
"""See :meth:`OnnxBackend.supports_device`."""
