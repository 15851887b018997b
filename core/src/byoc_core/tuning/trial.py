"""Trials: measurements of a placement in another process, by any :class:`concurrent.futures.Executor`.

A trial compiles the best placement so far and a new placement, and lets them race in one process, so each ratio is of
one machine. The model travels once to each worker: a trial names the model by digest, and a worker without the model
asks for it.
"""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from byoc_core.driver import Compiler, CompileRequest
from byoc_core.dtypes import dtype_name, to_numpy
from byoc_core.ir import IRModule
from byoc_core.partitioning.policies import PlacedOps
from byoc_core.runtime.module import NDArray
from byoc_core.script import parse
from byoc_core.tuning.candidates import Candidate, schedules_of
from byoc_core.tuning.judging import agree
from byoc_core.tuning.race import challenge

__all__ = ["PackedModel", "Trial", "TrialOutcome", "UnknownModelError", "run_trial"]

_MAX_MODELS = 2


class UnknownModelError(LookupError):
    """The worker does not have the model of a trial: send the trial again with the model."""


@dataclass(frozen=True)
class PackedModel:
    """A module as text and bytes.

    Attributes:
        text: the functions as script, constants by digest.
        constants: dtype and ``.npy`` bytes by digest.
        backends: the names of the backends whose ops the module may hold.
    """

    text: str
    constants: Mapping[str, tuple[str, bytes]]
    backends: tuple[str, ...]

    @classmethod
    def of(cls, module: IRModule, backends: tuple[str, ...]) -> Self:
        """Pack a module."""
        constants = {digest: (dtype_name(array.dtype), _to_bytes(array)) for digest, array in module.constants.items()}
        return cls(str(module), constants, backends)

    @property
    def digest(self) -> str:
        """The SHA-256 of text and names: digests of constants stand in the text."""
        return hashlib.sha256(repr((self.text, self.backends)).encode()).hexdigest()

    def unpack(self) -> IRModule:
        """Return the module.

        Raises:
            ByocError: a backend or an op is missing here.
        """
        constants = {digest: _from_bytes(*pair) for digest, pair in self.constants.items()}
        return parse(self.text, constants=constants, ops=Compiler().ops_for(self.backends))


@dataclass(frozen=True)
class Trial:
    """A race of a new placement against the best placement.

    Attributes:
        name: for messages.
        digest: of the model.
        request: the request as plain data, without placement; the backends are named.
        policy: the policy of the new placement, in the form of request files.
        best: the best placement, by op.
        function: the function to call.
        inputs: of the calls, by name.
        num_threads: the number of threads of a call.
        tolerance: of results relative to the best placement's (:func:`byoc_core.tuning.judging.rounding_tolerance`).
        model: the model, if the worker may not have it.
        schedules: the schedules of the best placement, by op.
    """

    name: str
    digest: str
    request: Mapping[str, Any]
    policy: Any
    best: Mapping[str, str]
    function: str
    inputs: Mapping[str, NDArray]
    num_threads: int
    tolerance: float = 0.0
    model: PackedModel | None = field(default=None, repr=False)
    schedules: Mapping[str, str] = field(default_factory=dict)

    def with_model(self, model: PackedModel) -> Trial:
        """Return the trial with the model."""
        return replace(self, model=model)


@dataclass(frozen=True)
class TrialOutcome:
    """The outcome of a trial.

    Attributes:
        ops: the new placement, by op.
        ratio: the time of the new placement over the time of the best.
        agrees: whether the results of both placements agree.
        schedules: the new schedules, by op.
    """

    ops: Mapping[str, str]
    ratio: float
    agrees: bool
    schedules: Mapping[str, str] = field(default_factory=dict)


_models: OrderedDict[str, IRModule] = OrderedDict()


def run_trial(trial: Trial) -> TrialOutcome:
    """Run a trial in this process.

    Raises:
        UnknownModelError: this process does not have the model, and the trial does not bring it.
        ByocError: a placement cannot be compiled or run.
    """
    module = _model_of(trial)
    base = CompileRequest.from_data(dict(trial.request))
    compiler = Compiler()
    best = compiler.build(module, base.updated(policy=PlacedOps(trial.best, trial.schedules)))
    policy = CompileRequest.from_data({"policy": trial.policy}).policy
    other = compiler.build(module, base.updated(policy=policy))
    champion, challenger = (
        Candidate.of(name, executable, trial.function, trial.inputs, trial.num_threads)
        for name, executable in (("best", best), (trial.name, other))
    )
    ratio, _ = challenge(champion.run, challenger.run)
    is_right = agree(challenger.results, champion.results, trial.tolerance)
    return TrialOutcome(challenger.ops, ratio, is_right, dict(schedules_of(policy)))


def _model_of(trial: Trial) -> IRModule:
    if trial.digest not in _models:
        if trial.model is None:
            raise UnknownModelError(trial.digest)
        _models[trial.digest] = trial.model.unpack()
        while len(_models) > _MAX_MODELS:
            _models.popitem(last=False)
    return _models[trial.digest]


def _to_bytes(array: NDArray) -> bytes:
    content = io.BytesIO()
    np.save(content, np.ascontiguousarray(array).reshape(array.shape).view(f"V{array.dtype.itemsize}"))
    return content.getvalue()


def _from_bytes(dtype: str, content: bytes) -> NDArray:
    array: NDArray = np.load(io.BytesIO(content), allow_pickle=False).view(to_numpy(dtype))
    return array
