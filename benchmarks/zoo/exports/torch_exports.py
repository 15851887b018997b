"""Exports of a PyTorch module by both exporters of PyTorch."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.zoo.exports.export import Export, Feeds, Sizes

__all__ = ["EXPORTERS", "TorchModel", "export_all"]

EXPORTERS = ("dynamo", "torchscript")
"""PyTorch's exporters: of programs captured by ``torch.export``, and of traced or scripted TorchScript."""

_OPSET = 18


@dataclass(frozen=True)
class TorchModel:
    """A PyTorch module with what an exporter needs to know.

    Attributes:
        name: the model's name.
        doc: the architecture and its source, in a line.
        build: return the module; the weights follow from a seed set before.
        draw: return the inputs by name, in the order of the module's arguments.
        example: the sizes of the inputs which the exporters run the module on.
        sizes: the choices of sizes that the model is run at.
        axes: for each input with dynamic sizes: the name of the size of each dynamic axis.
        outputs: the names of the outputs.
        exporters: the exporters to use, of ``EXPORTERS``; fewer where one cannot export the module.
        prepare: return what TorchScript's exporter is given instead of the module: ``torch.jit.script`` for a module
            with control flow.
        opset: the operator set of the file.
        reasons: see :class:`Export`.
    """

    name: str
    doc: str
    build: Callable[[], torch.nn.Module]
    draw: Callable[[np.random.Generator, Sizes], Feeds]
    example: Sizes
    sizes: Sequence[Sizes] = ({},)
    axes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    outputs: Sequence[str] = ("scores",)
    exporters: Sequence[str] = EXPORTERS
    prepare: Callable[[torch.nn.Module], Any] = lambda module: module
    opset: int = _OPSET
    reasons: Mapping[str, str] = field(default_factory=dict)


def export_all(model: TorchModel) -> list[Export]:
    """Return the exports of a module by its exporters."""
    return [
        Export(
            f"{model.name}/{exporter}",
            model.doc,
            partial(_write, model, exporter),
            model.draw,
            model.sizes,
            model.reasons,
        )
        for exporter in model.exporters
    ]


def _write(model: TorchModel, exporter: str, path: Path) -> None:
    """Write a module's ONNX file."""
    torch.manual_seed(0)
    module = model.build().eval()
    feeds = model.draw(np.random.default_rng(0), model.example)
    args = tuple(torch.from_numpy(np.asarray(array)) for array in feeds.values())
    shared: dict[str, Any] = {
        "input_names": list(feeds),
        "output_names": list(model.outputs),
        "opset_version": model.opset,
    }
    with _quiet(), torch.no_grad():
        if exporter == "dynamo":
            dims = {name: torch.export.Dim.DYNAMIC for axes in model.axes.values() for name in axes.values()}
            shapes = tuple({axis: dims[name] for axis, name in model.axes.get(name_, {}).items()} for name_ in feeds)
            torch.onnx.export(module, args, str(path), dynamo=True, dynamic_shapes=shapes, verbose=False, **shared)
        else:
            torch.onnx.export(
                model.prepare(module), args, str(path), dynamo=False, dynamic_axes=dict(model.axes), **shared
            )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters' progress and warnings off the terminal; errors are raised as ever."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
