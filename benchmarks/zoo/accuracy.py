"""The criteria for the results of a network: against float64, beside ONNX Runtime.

byoc and ONNX Runtime compute the same network in float32, each in a different order. The error of each against the
network in float64 may be at most ``ALLOWED_FACTOR`` times the larger of the other's error and one rounding. The rule
holds both ways, because the oracle is the imported network: with a wrong import, byoc would be near the oracle and ONNX
Runtime would not.

A result of few numbers may be near the oracle by chance, on one processor and not on another. For a network run at
many sizes, the smaller error therefore counts as at least the worst error of all sizes, of the program with the
smaller worst error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

__all__ = [
    "Accuracy",
    "Array",
    "judge",
    "open_session",
    "relative_difference",
    "relative_error",
    "run_peer",
    "with_usual_error",
]

Array = npt.NDArray[Any]

ALLOWED_FACTOR = 4.0
LEAST_DIFFERENCE = 1e-2
ROUNDING = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Accuracy:
    """A run beside ONNX Runtime's.

    Attributes:
        error: largest error against float64, over the largest magnitude of the same result.
        peer_error: the same for ONNX Runtime.
        distance: largest difference between byoc and ONNX Runtime, over the largest magnitude.
        difference: the difference between the results of two inputs, in standard deviations of the first result.
        usual_error: the largest error over all sizes of the network, of the program with the smaller largest error; 0
            for a network run at a single size.
    """

    error: float
    peer_error: float
    distance: float
    difference: float
    usual_error: float = 0.0

    @property
    def excess(self) -> float:
        """The larger error over the allowed error, given the smaller error."""
        errors = (self.error, self.peer_error)
        return max(errors) / (ALLOWED_FACTOR * max(min(errors), self.usual_error, ROUNDING))

    @property
    def is_right(self) -> bool:
        """Whether the network depends on the input, and both errors are of the size of rounding."""
        return self.difference > LEAST_DIFFERENCE and self.excess <= 1.0

    def __str__(self) -> str:
        return (
            f"error {self.error:.1e} (ONNX Runtime {self.peer_error:.1e}), apart {self.distance:.1e}, "
            f"inputs differ {self.difference:.2f}{'' if self.is_right else '  WRONG'}"
        )


def judge(
    results: Sequence[Array], peers: Sequence[Array], other_results: Sequence[Array], exacts: Sequence[Array]
) -> Accuracy:
    """Return the accuracy of a run: the largest errors and the smallest difference of all results.

    Args:
        results: results of byoc.
        peers: results of ONNX Runtime on the same inputs.
        other_results: results of ONNX Runtime on other inputs.
        exacts: results of byoc in float64.
    """
    return Accuracy(
        error=max(map(relative_error, results, exacts)),
        peer_error=max(map(relative_error, peers, exacts)),
        distance=max(map(relative_error, results, peers)),
        difference=min(map(relative_difference, peers, other_results)),
    )


def with_usual_error(accuracies: Sequence[Accuracy]) -> list[Accuracy]:
    """Return the accuracies of a network at all sizes, each judged beside the worst errors over all sizes."""
    usual = min(max(a.error for a in accuracies), max(a.peer_error for a in accuracies))
    return [replace(accuracy, usual_error=usual) for accuracy in accuracies]


def relative_error(found: Array, expected: Array) -> float:
    """Return the largest difference over the largest magnitude; 0 without a difference.

    Raises:
        ValueError: the shapes differ.
    """
    if found.shape != expected.shape:
        raise ValueError(f"a result has the shape {found.shape}, expected {expected.shape}")
    difference = np.abs(found - expected).max()
    return float(difference / np.abs(expected).max()) if difference else 0.0


def relative_difference(first: Array, second: Array) -> float:
    """Return the standard deviation of the difference of two outputs over the standard deviation of the first output.

    Two inputs of a network depending on the input result in more than 1e-2.
    """
    return float((first - second).std() / first.std())


def open_session(data: bytes | Path, *, is_optimised: bool = True) -> onnxruntime.InferenceSession:
    """Return ONNX Runtime's session of a model.

    Args:
        data: the bytes of its file, or the path.
        is_optimised: whether the session optimises the graph; otherwise each node is computed as written.
    """
    options = onnxruntime.SessionOptions()
    if not is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3  # some models hold unused weights
    return onnxruntime.InferenceSession(
        data if isinstance(data, bytes) else str(data), options, providers=["CPUExecutionProvider"]
    )


def run_peer(session: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> list[Array]:
    """Return ONNX Runtime's results, in order."""
    return [np.asarray(array) for array in session.run(None, dict(feeds))]
