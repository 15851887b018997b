"""How the results of a network are judged: against float64, beside ONNX Runtime.

byoc and ONNX Runtime compute the same network in float32, each in its own order. Neither may be more than
``ALLOWED_FACTOR`` times further from the network in float64 than the other, or than one rounding where that is more.
The rule holds both ways: the oracle is the imported network, and if that were another one than the file says, byoc
would be near it and ONNX Runtime would not.

A result of few numbers may be near the oracle by chance, on one processor and not on another. So where a network runs
at many sizes, the smaller error counts as no less than the worst of all sizes, of the program whose worst is smaller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    """One run beside ONNX Runtime's.

    Attributes:
        error: largest error against float64, over the largest magnitude of the result in which it is.
        peer_error: the same of ONNX Runtime.
        distance: largest difference of the two, over the largest magnitude.
        difference: how much the results of two inputs differ, in standard deviations of the first.
        usual_error: the largest error over all sizes of the network, of the program whose largest is the smaller; 0
            where the network runs at one size.
    """

    error: float
    peer_error: float
    distance: float
    difference: float
    usual_error: float = 0.0

    @property
    def excess(self) -> float:
        """The larger error over what is allowed beside the smaller one."""
        errors = (self.error, self.peer_error)
        return max(errors) / (ALLOWED_FACTOR * max(min(errors), self.usual_error, ROUNDING))

    @property
    def is_right(self) -> bool:
        """Whether the network depends on its input, and both errors are of the size of rounding."""
        return self.difference > LEAST_DIFFERENCE and self.excess <= 1.0

    def __str__(self) -> str:
        return (
            f"error {self.error:.1e} (ONNX Runtime {self.peer_error:.1e}), apart {self.distance:.1e}, "
            f"inputs differ {self.difference:.2f}{'' if self.is_right else '  WRONG'}"
        )


def judge(
    results: Sequence[Array], peers: Sequence[Array], others: Sequence[Array], exacts: Sequence[Array]
) -> Accuracy:
    """Gives the accuracy of one run: the largest errors and the smallest difference of all its results.

    Args:
        results: those of byoc.
        peers: those of ONNX Runtime on the same inputs.
        others: those of ONNX Runtime on other inputs.
        exacts: those of byoc in float64.
    """
    return Accuracy(
        error=max(map(relative_error, results, exacts)),
        peer_error=max(map(relative_error, peers, exacts)),
        distance=max(map(relative_error, results, peers)),
        difference=min(map(relative_difference, peers, others)),
    )


def with_usual_error(accuracies: Sequence[Accuracy]) -> list[Accuracy]:
    """Return the accuracies of a network at all its sizes, each judged beside the worst of them."""
    usual = min(max(a.error for a in accuracies), max(a.peer_error for a in accuracies))
    return [replace(accuracy, usual_error=usual) for accuracy in accuracies]


def relative_error(found: Array, wanted: Array) -> float:
    """Gives the largest difference over the largest magnitude; 0 where nothing differs.

    Raises:
        ValueError: the shapes differ.
    """
    if found.shape != wanted.shape:
        raise ValueError(f"a result has the shape {found.shape}, expected {wanted.shape}")
    difference = np.abs(found - wanted).max()
    return float(difference / np.abs(wanted).max()) if difference else 0.0


def relative_difference(first: Array, second: Array) -> float:
    """Gives the standard deviation of the difference of two outputs over that of the first output.

    Two inputs of a network that depends on its input give more than 1e-2.
    """
    return float((first - second).std() / first.std())


def open_session(data: bytes) -> onnxruntime.InferenceSession:
    """Gives ONNX Runtime's session of a model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # some models hold weights that no node uses
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run_peer(session: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> list[Array]:
    """Gives ONNX Runtime's results, in order."""
    return [np.asarray(array) for array in session.run(None, dict(feeds))]
