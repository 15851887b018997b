"""An engine in a measuring process: the task given to the engine, and the model ready to be called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from byoc_core.runtime.module import NDArray

__all__ = ["EngineTask", "OpenEngine", "OpenedEngine"]


@dataclass(frozen=True)
class EngineTask:
    """The task of an engine.

    Attributes:
        file: the model: an artifact for byoc, an ONNX file for peers.
        function: the function to call; peers have the function ``main`` only.
        inputs: one array for each input, by name.
        num_threads: the number of threads of a call.
    """

    file: Path
    function: str
    inputs: Mapping[str, NDArray]
    num_threads: int


@dataclass(frozen=True)
class OpenedEngine:
    """A model loaded by an engine, with bound inputs.

    Attributes:
        call: run the model once on the inputs.
        read_outputs: return the outputs of the latest call or of a further call, in the order of the model.
        version: of the engine.
        resources: kept alive as long as the engine.
    """

    call: Callable[[], object]
    read_outputs: Callable[[], Sequence[NDArray]]
    version: str
    resources: object = None


OpenEngine = Callable[[EngineTask], OpenedEngine]
"""The entry of an engine: import the engine and load the model. The time counts as the time to load."""
