"""The zoo's decoders with caches as states: right logits step by step, and no copy of a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.dims import symbols_of

from benchmarks.zoo.accuracy import Array
from benchmarks.zoo.built_model import BuiltModel
from benchmarks.zoo.network_check import ModelCheck
from benchmarks.zoo.networks import NETWORKS
from core.tests.models.zoo_backends import HOST, choose_trials, list_backends, result_options

_DECODERS = [name for name in NETWORKS if NETWORKS[name].has_cache]


@cache
def _check(name: str, style: str) -> ModelCheck:
    return ModelCheck(name, "tiny", style)


def _build(name: str, style: str, backend: str) -> Executable:
    module = byoc_core.from_onnx(NETWORKS[name].build("tiny", style), states="detect")
    return byoc_core.build(module, list_backends(backend), options=result_options(backend))


def _stateful_run(executable: Executable) -> BuiltModel:
    """Return the model with the caches kept by the machine, and shown in the order of axes of the model."""
    machine = byoc_core.VirtualMachine(executable)
    state = machine.state()

    def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
        inputs = {name: array for name, array in feeds.items() if not name.startswith("past_")}
        logits = machine.run("main", inputs)
        assert isinstance(logits, np.ndarray)
        return [logits, *(np.moveaxis(state[name], 0, 2) for name in state.names)]

    return BuiltModel(run, float(executable.report_data["offloaded_share"]))


@pytest.mark.parametrize(("name", "style", "backend"), choose_trials(_DECODERS))
def test_decoding_with_states(name: str, style: str, backend: str, tmp_path: Path) -> None:
    executable = _build(name, style, backend)
    executable.save(tmp_path / "decoder.byoc")
    loaded = byoc_core.load(tmp_path / "decoder.byoc", allow_native=True)
    built = _stateful_run(loaded)
    accuracy = _check(name, style).compare_decoding(built)
    assert accuracy is not None
    assert accuracy.is_right, str(accuracy)
    assert (built.offloaded_share > 0) == (backend != HOST)
    summaries = loaded.states["main"]
    num_layers = NETWORKS[name].configs["tiny"].num_layers
    assert len(summaries) == 2 * num_layers
    for summary in summaries:
        assert summary.axis == 0
        for nbytes in summary.copied_nbytes.values():  # new rows at most, but to a device the whole value
            assert loaded.program.domains or "past" not in symbols_of(nbytes), str(summary)
