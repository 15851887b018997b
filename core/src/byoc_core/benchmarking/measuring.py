"""The benchmark of a model: byoc and peers on the same inputs, by sizes and numbers of threads."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from byoc_core.benchmarking.comparing import OutputComparison, reported_backends
from byoc_core.benchmarking.input_sets import Arrays, Inputs, batch_symbol, sets_of_inputs
from byoc_core.benchmarking.peers import BYOC, BYOC_ENTRY, BYOC_SETTINGS, Peer, choose_peers
from byoc_core.benchmarking.process import MeasuredModel
from byoc_core.benchmarking.results import Benchmark, BenchmarkRow, EngineVersion, OutputCheck
from byoc_core.benchmarking.rounds import Effort, EngineRun, measure_engines
from byoc_core.benchmarking.statistics import Latency, Ratio
from byoc_core.debugging import signature_of
from byoc_core.errors import OptionsError
from byoc_core.measurements.machine import machine_facts
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.array_files import save_arrays
from byoc_core.runtime.module import Signature
from byoc_core.runtime.threads import check_num_threads
from byoc_core.runtime.threads import num_threads as process_threads

if TYPE_CHECKING:
    from byoc_core.artifact import Executable
    from byoc_core.ir import IRModule

__all__ = ["bench"]


def bench(
    executable: Executable,
    inputs: Inputs | Sequence[Inputs] | None = None,
    *,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    against: Sequence[str] = (),
    model: str | PathLike[str] | None = None,
    module: IRModule | None = None,
    function: str = "main",
    num_threads: int | Sequence[int] | None = None,
    seconds: float = 2.0,
    num_starts: int = 3,
    seed: int = 0,
    peers: Mapping[str, Peer] | None = None,
    progress: Callable[[str], object] | None = None,
) -> Benchmark:
    """Measure calls of a compiled model, beside other inference engines on the same inputs.

    Each engine runs in fresh processes of its own, for each number of threads and each set of sizes: loads the model,
    calls once, and warms up until the times are stable. Then the engines run in turn, in rounds. Outputs are compared
    before the figures are computed: an engine with other outputs than byoc has no ratio.

    The measured program is the artifact of :meth:`Executable.save`, loaded without a compiler. For symbolic sizes,
    regions of backends with static shapes need ``build(specialize=...)``.

    Args:
        executable: the model.
        inputs: the inputs by name, or several sets of inputs; by default drawn at random.
        sizes: a size or several for each symbol of drawn inputs: each size with each size of other symbols; 1 by
            default.
        against: the names of peers, such as ``"onnxruntime"``.
        model: the ONNX file for the peers.
        module: the imported file, to save the import; the tolerance of outputs is derived from the module.
        function: the function to call; peers have the function ``main`` only.
        num_threads: the number of threads of a call, or several numbers; by default the number of the process.
        seconds: measured calls of each engine, for each number of threads and set of sizes. At least 3 rounds of a call
            are measured, and at most 24,000 calls.
        num_starts: the number of fresh processes of each engine; the measured calls are shared among the processes.
        seed: of drawn inputs.
        peers: the known peers; by default :data:`byoc_core.benchmarking.PEERS`.
        progress: called with the name of each stage at the stage's beginning.

    Raises:
        OptionsError: a peer is unknown or not installed, ``model`` is missing or has other inputs, a size is unknown,
            or a number is out of range.
        CallError: an input is missing or does not fit.
        ExecutionError: byoc failed in a measuring process. Failures of peers are results.
        FrontendError: the ONNX file cannot be imported.
    """
    peer_rows = choose_peers(against, peers)
    signature = executable.signature(function)
    _check_numbers(seconds, num_starts)
    threads = _threads(num_threads)
    sets = sets_of_inputs(signature, function, inputs, sizes or {}, seed)
    say = progress or (lambda _stage: None)
    if peer_rows and model is None:
        raise OptionsError("bench, model", "is missing: peers load an ONNX file", expected="model=FILE.onnx")
    if peer_rows and module is None:
        from byoc_core.frontend.onnx import from_onnx

        say("import")
        assert model is not None
        module = from_onnx(Path(model))
    if peer_rows:
        assert module is not None
        _check_same_inputs(signature, function, module)
    with tempfile.TemporaryDirectory(prefix="byoc-bench-", ignore_cleanup_errors=True) as folder:
        contest = _Contest(executable, function, signature, peer_rows, model, module, Effort(seconds, num_starts), say)
        return contest.run(Path(folder), sets, threads)


@dataclass(frozen=True)
class _Contest:
    """The engines of a benchmark."""

    executable: Executable
    function: str
    signature: Signature
    peers: Mapping[str, Peer]
    model: str | PathLike[str] | None
    module: IRModule | None
    effort: Effort
    say: Callable[[str], object]

    def run(self, folder: Path, sets: Sequence[Arrays], threads: Sequence[int]) -> Benchmark:
        artifact = folder / "model.byoc"
        self.executable.save(artifact)
        rows: list[BenchmarkRow] = []
        versions: dict[str, str] = {}
        for index, inputs in enumerate(sets):
            file = folder / f"inputs{index}.npz"
            save_arrays(file, inputs)
            for number in threads:
                models = [MeasuredModel(BYOC, BYOC_ENTRY, artifact, self.function, file, number)]
                for name, peer in self.peers.items():
                    assert self.model is not None
                    onnx_file = Path(self.model).absolute()
                    models.append(MeasuredModel(name, peer.entry, onnx_file, self.function, file, number))
                rows += self._measure(models, inputs, number, folder, versions)
        settings = {BYOC: BYOC_SETTINGS, **{name: peer.settings for name, peer in self.peers.items()}}
        engines = tuple(EngineVersion(name, versions.get(name, ""), text) for name, text in settings.items())
        effort = self.effort
        return Benchmark(self.function, _machine_text(), effort.seconds, effort.num_starts, engines, tuple(rows))

    def _measure(
        self, models: Sequence[MeasuredModel], inputs: Arrays, number: int, folder: Path, versions: dict[str, str]
    ) -> list[BenchmarkRow]:
        """Return the rows of the engines for a set of inputs and a number of threads, and note the versions."""
        sizes = bind_symbols(self.signature.inputs, [inputs[spec.name] for spec in self.signature.inputs])
        title = ", ".join([*(f"{name}={size}" for name, size in sizes.items()), f"threads {number}"])
        checks: dict[str, OutputCheck] = {}
        runs = measure_engines(
            models,
            self.effort,
            folder,
            lambda stage: self.say(f"{title}: {stage}"),
            lambda opened: checks.update(self._compare(opened, inputs)),
        )
        versions.update({name: run.starts[0].version for name, run in runs.items() if run.starts})
        batch_size = sizes.get(batch_symbol(self.signature) or "")
        return [_row(name, run, runs[BYOC], checks.get(name), sizes, number, batch_size) for name, run in runs.items()]

    def _compare(self, runs: Mapping[str, EngineRun], inputs: Arrays) -> dict[str, OutputCheck]:
        if self.module is None:
            return {}
        byoc = runs[BYOC]
        infos = reported_backends(self.executable.report_data)
        run_seconds = byoc.starts[0].first_call_seconds
        comparison = OutputComparison(self.module, self.function, self.signature, inputs, infos, run_seconds)
        return {
            name: comparison.check(name, run.outputs, byoc.outputs)
            for name, run in runs.items()
            if name != BYOC and not run.failure
        }


def _row(
    engine: str,
    run: EngineRun,
    byoc: EngineRun,
    check: OutputCheck | None,
    sizes: Mapping[str, int],
    num_threads: int,
    batch_size: int | None,
) -> BenchmarkRow:
    if run.failure:
        return BenchmarkRow(sizes, num_threads, engine, batch_size, failure=run.failure)
    nbytes = [start.peak_nbytes for start in run.starts if start.peak_nbytes is not None]
    return BenchmarkRow(
        sizes,
        num_threads,
        engine,
        batch_size,
        Latency.of([seconds for calls in run.rounds for seconds in calls]),
        median(start.load_seconds for start in run.starts),
        median(start.first_call_seconds for start in run.starts),
        int(median(nbytes)) if nbytes else None,
        sum(start.num_warm_up_calls for start in run.starts),
        Ratio.of(run.rounds, byoc.rounds) if check is not None and check.agrees else None,
        check,
    )


def _check_numbers(seconds: float, num_starts: int) -> None:
    if not 0 <= seconds < float("inf"):
        raise OptionsError("bench, seconds", "is not a budget", got=seconds, expected="a finite number from 0")
    if num_starts < 1:
        raise OptionsError("bench, num_starts", "is too small", got=num_starts, expected="1 or more")


def _threads(num_threads: int | Sequence[int] | None) -> list[int]:
    numbers = [process_threads()] if num_threads is None else num_threads
    numbers = [numbers] if isinstance(numbers, int) else list(numbers)
    return list(dict.fromkeys(check_num_threads(number, "bench, num_threads") for number in numbers))


def _check_same_inputs(signature: Signature, function: str, module: IRModule) -> None:
    """Check that the ONNX model has the function, and the inputs of the compiled function."""
    if function not in module.functions:
        raise OptionsError("bench, function", "is not in the ONNX model", got=function, expected="main")
    expected = signature_of(module[function]).inputs
    texts = [
        [f"{spec.name} {spec.dtype} {list(map(str, spec.shape))}" for spec in specs]
        for specs in (expected, signature.inputs)
    ]
    if texts[0] != texts[1]:
        raise OptionsError(
            "bench, model",
            "has other inputs than the compiled model",
            got=", ".join(texts[0]),
            expected=", ".join(texts[1]),
            hint="Give the ONNX file of this compiled model.",
        )


def _machine_text() -> str:
    facts = machine_facts()
    return f"{facts['processor']}, {facts['cpus']} cpus, {platform.system()} {facts['machine']}"
