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

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from byoc_core.artifact import Executable
from byoc_core.driver import build
from byoc_core.errors import ByocError, OptionsError, near_names
from byoc_core.frontend.onnx import from_onnx
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.value_forms import pack_value, unpack_value
from byoc_core.session.values import values_of_function
from byoc_core.vm import VirtualMachine

__all__ = [
    "OnnxBackend",
    "PreparedModel",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]


class PreparedModel(BackendRep):
    """A compiled model, ready for calls.

    Attributes:
        executable: the compiled model.
        input_names: the names of the inputs without initializer, in the model's order.
        output_names: the names of the outputs, in the model's order.
    """

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        self._inputs, self._outputs = values_of_function(executable, "main")
        self.input_names = tuple(value.name for value in self._inputs)
        self.output_names = tuple(value.name for value in self._outputs)
        self._call = VirtualMachine(executable)["main"]

    def run(self, inputs: Sequence[object] | Mapping[str, object] | object, **kwargs: Any) -> tuple[NDArray, ...]:
        """Return the outputs, in the model's order.

        Args:
            inputs: the inputs in the model's order, or by name; or the only input. A sequence is a list of arrays, a
                map a dictionary, an absent optional value ``None``.
            kwargs: of the interface; there are none.

        Raises:
            OptionsError: an input is missing or unknown, or there are ``kwargs``.
            CallError: an input is of another kind than declared.
            ExecutionError: an input has another dtype or shape than declared, or the model cannot be run on the inputs.
        """
        _refuse("run", kwargs)
        pairs = zip(self._inputs, self._in_order(inputs), strict=True)
        parts = (
            part for info, value in pairs for part in pack_value(info.form, info.specs, value, f"input `{info.name}`")
        )
        results = self._call(*map(np.asarray, parts))
        arrays = iter(results if isinstance(results, tuple) else (results,))
        return tuple(unpack_value(info.form, arrays) for info in self._outputs)

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
        return PreparedModel(build(from_onnx(model), **kwargs))

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
