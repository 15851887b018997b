"""Conversion of an ONNX model into an IR module. The package ``onnx`` is imported by the first call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from byoc_core.errors import FrontendError, OptionsError
from byoc_core.runtime.state_pairs import read_state_pairs

if TYPE_CHECKING:
    from onnx import ModelProto

    from byoc_core.ir.module import IRModule
    from byoc_core.opset.registry import OpRegistry

__all__ = ["from_onnx", "needing_onnx", "weight_names"]


def from_onnx(
    model: str | os.PathLike[str] | bytes | ModelProto,
    *,
    ops: OpRegistry | None = None,
    max_nodes: int | None = None,
    states: str | Sequence[tuple[str, str]] = (),
    swappable_weights: bool | Sequence[str] = False,
) -> IRModule:
    """Convert an ONNX model to an IR module with a single function, ``main``.

    Operators unknown to the core and to ``ops`` are imported by functions registered by
    :func:`byoc_core.register_op`, or else by installed plugins of the group ``byoc.importers``. Plugins are opened for
    models with such operators only.

    Args:
        model: a file, a file's bytes, or a loaded model. External data is read only from the folder of a model file.
        ops: the registry for op names, and of the module; byoc's own ops by default. Ops of importers used by the
            model are added.
        max_nodes: the most nodes after expansion of function calls, unrolled loops and sequences, including the
            resulting ops; by default 100,000 plus 16 for each node in the file.
        states: pairs of an input and an output to be kept from call to call, such as the caches of a decoder
            (:class:`byoc_core.transform.KeepStates`); ``"detect"`` for the pairs named like a past and a present value
            (:func:`byoc_core.transform.detect_states`).
        swappable_weights: whether the weights of the compiled model may be replaced later
            (:func:`byoc_core.artifact.swap_weights`): ``True`` for all initializers of floats but scalars, or the names
            of initializers, with ``*`` and ``?`` for any text. Passes and backends do not see the values of these
            weights.

    Returns:
        A module whose ``main`` has a parameter for each input without initializer, in the model's order. The attributes
        ``input_names`` and ``output_names`` keep the model's names, ``input_forms`` and ``output_forms`` name the
        forms of values other than tensors (:mod:`byoc_core.runtime.value_forms`). Named dynamic sizes (``dim_param``)
        become symbols of the same name, unnamed and negative sizes become fresh symbols. Each binding's location names
        its node. Functions are imported in the place of their calls. Branches and loop bodies become regions. If the
        taken branch is known, or a loop has few rounds, the nodes of the body replace the node instead.

    Raises:
        UnsupportedOpsError: the model has unsupported ops; all of these are listed, with counts, and with code for
            importing such an op. Importer plugins set aside are listed with reason and remedy.
        FrontendError: the file is no ONNX model or is damaged, its graph is malformed or nested too deeply, expands to
            more than ``max_nodes`` nodes, declares an input too large for any array, a node uses an unsupported variant
            of an op, or the package ``onnx`` is missing.
        PluginError: several importer plugins import an operator of the model.
        HookError: the importer of a plugin raised an exception, or returned anything but the outputs of the node.
        IRError: ops of the same name come from several places.
        OptionsError: ``max_nodes`` is not positive, ``states`` is neither ``"detect"`` nor pairs, or a name of
            ``swappable_weights`` fits no initializer.
        IRError: a pair of ``states`` names no input or output, or the shapes do not fit each other.

    Cost:
        ``O(nodes + bytes of weights)``; weights in external files are memory-mapped.
    """
    with needing_onnx():
        from byoc_core.frontend.onnx.importer import import_model
        from byoc_core.frontend.onnx.loading import load_model

    if max_nodes is not None and max_nodes < 1:
        raise OptionsError("max_nodes", "is not positive", got=max_nodes)
    module = import_model(load_model(model), ops, max_nodes, swappable_weights=swappable_weights)
    return _with_states(module, states) if states else module


def weight_names(model: str | os.PathLike[str] | bytes | ModelProto) -> tuple[str, ...]:
    """Return the names of the initializers of a model's graph, in the order of the file.

    Raises:
        FrontendError: the file is no ONNX model, or is damaged, or the package ``onnx`` is missing.
    """
    with needing_onnx():
        from byoc_core.frontend.onnx.loading import load_model

    return tuple(initializer.name for initializer in load_model(model).graph.initializer)


def _with_states(module: IRModule, states: str | Sequence[tuple[str, str]]) -> IRModule:
    from byoc_core.transform.keep_states import KeepStates, detect_states

    pairs = read_state_pairs(states)
    return KeepStates(detect_states(module["main"]) if isinstance(pairs, str) else pairs)(module)


@contextmanager
def needing_onnx() -> Iterator[None]:
    """Convert a failed import of the package ``onnx`` into an error with a remedy.

    Raises:
        FrontendError: the package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "onnx":
            raise
        raise FrontendError(
            "ONNX front end", "needs the package `onnx`", hint="pip install 'byoc-core[onnx]'."
        ) from error
