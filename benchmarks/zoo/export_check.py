"""The check of an exported model: built once for all sizes, saved, loaded, and run beside ONNX Runtime.

The rule is that of :mod:`benchmarks.zoo.accuracy`, for each output over all sizes.

A quantised model is not continuous: a value in the middle between two steps is rounded up or down by the last bit of
the arithmetic before, and a step of an early layer reaches all results. The middle is no rare value: a ``LeakyRelu`` of
slope 0.1 between equal scales returns the middle for every tenth integer. If the errors are not those of rounding, the
root mean squares of both errors against float64 may be at most the quantisation error: the root mean square of the
difference between the quantised model in float64 and the model of floats. Wrong scales and zero points, and rounding
other than to nearest, have larger errors.

ONNX Runtime computes a quantised model as written. Its fusions have results of their own: ``QLinearSoftmax`` is wrong
by up to a step, and products by dequantised weights round the factors to 8 bits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
from byoc_core.debugging import signature_of
from byoc_core.ir import IRModule
from byoc_core.onnx_backend import PreparedModel
from byoc_core.opset.delegated import is_delegated
from byoc_core.runtime.value_forms import pack_value, unpack_value
from byoc_core.session.values import values_of
from byoc_core.transform.evaluate import evaluate_function
from onnxruntime import InferenceSession

from benchmarks.zoo.accuracy import ALLOWED_FACTOR, ROUNDING, open_session
from benchmarks.zoo.exports.export import Export, Sizes

__all__ = ["CheckedExport", "ExportCheck"]

_SEED = 1


@dataclass(frozen=True)
class CheckedExport:
    """What an exported model did on some backends.

    Attributes:
        ops: the number of ops of all compiled functions, and the number of delegated ones of these.
        offloaded_share: the share of FLOPs taken by backends other than the host.
        error: the largest error of an output over all sizes, over the largest magnitude of the output, against
            float64.
        peer_error: the same for ONNX Runtime.
        wrong: a line for each wrong output.
    """

    ops: int
    delegated: int
    offloaded_share: float
    error: float
    peer_error: float
    wrong: Sequence[str]


@dataclass(frozen=True)
class _Trial:
    """A choice of sizes: inputs, ONNX Runtime's results, the results in float64, and those of the model of floats."""

    sizes: Sizes
    feeds: Mapping[str, Any]
    peers: Sequence[Any]
    exacts: Sequence[Any]
    originals: Sequence[Any] | None


@dataclass(frozen=True)
class _Errors:
    """The errors of an output against float64, over its largest magnitude.

    Attributes:
        error: of the result.
        peer_error: of ONNX Runtime's result.
        unit: one rounding.
        is_of_quantisation: whether both errors are within the quantisation error.
    """

    error: float
    peer_error: float
    unit: float = ROUNDING
    is_of_quantisation: bool = False

    def is_right(self, usual: float) -> bool:
        """Return whether the errors are of the size of rounding, or of quantisation.

        Args:
            usual: the largest error over all sizes, of the program with the smaller largest error.
        """
        errors = self.error, self.peer_error
        return self.is_of_quantisation or max(errors) <= ALLOWED_FACTOR * max(min(errors), usual, self.unit)


class ExportCheck:
    """An exported model beside ONNX Runtime; the results to compare with are computed once for all backends.

    Args:
        export: the export.
        folder: holds the file, and the artifacts.
    """

    def __init__(self, export: Export, folder: Path) -> None:
        self._export = export
        self._folder = folder
        self._path = folder / "model.onnx"
        export.write(self._path)
        self._graph = onnx.load(self._path, load_external_data=False).graph

    @cached_property
    def module(self) -> IRModule:
        """The imported model.

        Raises:
            FrontendError: the model cannot be imported.
        """
        return byoc_core.from_onnx(self._path)

    def check(self, backends: Sequence[str]) -> CheckedExport:
        """Build the model once, save and load it, and compare its results at all sizes.

        Raises:
            ByocError: the model cannot be imported, compiled or run.
        """
        executable = byoc_core.build(self.module, backends=backends)
        with tempfile.TemporaryDirectory() as folder:
            artifact = Path(folder) / "model.byoc"
            executable.save(artifact)
            machine = PreparedModel(byoc_core.load(artifact, allow_native=True))
        rows = [row for row in executable.report_data["ops"] if row["outcome"] != "(view)"]
        found: dict[str, list[tuple[Sizes, _Errors]]] = {}
        wrong = []
        for trial in self._trials:
            results = machine.run(trial.feeds)
            for name, compared in self._compare(results, trial):
                if isinstance(compared, str):
                    wrong.append(f"{_text(trial.sizes)}: `{name}` {compared}")
                else:
                    found.setdefault(name, []).append((trial.sizes, compared))
        wrong += [line for name, errors in found.items() for line in _wrong(name, errors)]
        everything = [errors for of_output in found.values() for _, errors in of_output]
        return CheckedExport(
            len(rows),
            sum(is_delegated(str(row["op"])) for row in rows),
            float(executable.report_data["offloaded_share"]),
            max((errors.error for errors in everything), default=0.0),
            max((errors.peer_error for errors in everything), default=0.0),
            wrong,
        )

    @cached_property
    def _trials(self) -> Sequence[_Trial]:
        session = open_session(self._path, is_optimised=self._export.original is None)
        original = self._open_original()
        trials = []
        for sizes in self._export.sizes:
            feeds = self._export.draw(np.random.default_rng(_SEED), sizes)
            peers = session.run(None, dict(feeds))
            originals = None if original is None else original.run(None, dict(feeds))
            trials.append(_Trial(sizes, feeds, peers, self._exact(feeds), originals))
        return trials

    def _open_original(self) -> InferenceSession | None:
        if self._export.original is None:
            return None
        path = self._folder / "original.onnx"
        self._export.original(path)
        return open_session(path)

    def _exact(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        main = self.module["main"]
        inputs, outputs = values_of(signature_of(main), main.attrs)
        parts = [part for info in inputs for part in pack_value(info.form, info.specs, feeds[info.name], info.name)]
        arrays = iter(evaluate_function(self.module, "main", parts, exact=True))
        return [unpack_value(info.form, arrays) for info in outputs]

    def _compare(self, results: Sequence[Any], trial: _Trial) -> Iterator[tuple[str, _Errors | str]]:
        """Yield for each output its errors and those of ONNX Runtime, or the text of what is wrong."""
        for number, (value, result, peer) in enumerate(zip(self._graph.output, results, trial.peers, strict=True)):
            if value.name in self._export.reasons:
                continue
            original = None if trial.originals is None else np.asarray(trial.originals[number])
            forms = (_arrays(form) for form in (result, peer, trial.exacts[number]))
            for found, expected, exact in zip(*forms, strict=True):
                yield value.name, _compare(found, expected, exact, original)


def _arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays to compare of an output: an array, a list of arrays, or keys and values of a list of maps."""
    if not isinstance(value, list):
        return [np.asarray(value)]
    if value and isinstance(value[0], dict):
        keys = np.array([list(row) for row in value])
        return [keys, np.array([list(row.values()) for row in value], np.float32)]
    return [np.asarray(element) for element in value]


def _compare(
    result: np.ndarray[Any, Any], peer: np.ndarray[Any, Any], exact: Any, original: np.ndarray[Any, Any] | None
) -> _Errors | str:
    """Return the errors of a result and of ONNX Runtime's against float64, or the text of what is wrong.

    Numbers that are no floats must be equal.
    """
    if result.shape != peer.shape:
        return f"has the shape {result.shape}, with ONNX Runtime {peer.shape}"
    if result.dtype != peer.dtype:
        return f"has the dtype {result.dtype}, with ONNX Runtime {peer.dtype}"
    if result.dtype.kind != "f":
        different = int((result != peer).sum())
        return f"differs in {different} of {result.size} elements" if different else _Errors(0.0, 0.0)
    if exact.shape != peer.shape:
        return f"has the shape {peer.shape}, in float64 {exact.shape}"
    if result.size == 0:
        return _Errors(0.0, 0.0)
    largest = float(np.abs(exact).max()) or 1.0
    error, peer_error = (float(np.abs(found - exact).max()) / largest for found in (result, peer))
    is_of_quantisation = original is not None and max(_rms(result - exact), _rms(peer - exact)) <= _rms(
        original - exact
    )
    return _Errors(error, peer_error, max(ROUNDING, float(np.finfo(result.dtype).eps)), is_of_quantisation)


def _wrong(name: str, errors: Sequence[tuple[Sizes, _Errors]]) -> Iterator[str]:
    """Yield a line for each size with a wrong output of this name."""
    usual = min(max(found.error for _, found in errors), max(found.peer_error for _, found in errors))
    for sizes, found in errors:
        if not found.is_right(usual):
            text = f"has an error of {found.error:.1e}, with ONNX Runtime {found.peer_error:.1e}"
            yield f"{_text(sizes)}: `{name}` {text}"


def _rms(array: np.ndarray[Any, Any]) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))


def _text(sizes: Sizes) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items()) or "fixed sizes"
