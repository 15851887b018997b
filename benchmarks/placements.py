"""Placement by cost on a zoo of models: beside each backend alone, ONNX Runtime and OpenVINO, with one and two threads.

Each contestant is a separate process with the settings of ``benchmarks.models_process``; all contestants of byoc have
the same environment. Outputs are compared before the measurement. The figures are the better peer's time over the time
of each contestant, the best single backend's time over the time of the placement, and the shares of FLOPs by backend.
``benchmarks.placement_guard`` lists the models with a placement slower than a backend alone, or slower than a peer.
After each model the figures so far are written to ``out/placements.json``; Ctrl-C ends the measurement and keeps the
figures.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
from byoc_core.artifact import Executable
from byoc_core.errors import ByocError
from byoc_core.ir import IRModule
from byoc_core.reporting.shares import items_of
from byoc_core.runtime import threads

from benchmarks.contests import Comparison, Effort, compare_engines
from benchmarks.models import DNNL_ALONE, THREADS, check_names, installed_peers, load_model
from benchmarks.models_process import DISTRIBUTIONS, SETTINGS
from benchmarks.pairing import Samples, describe_machine, write_result
from benchmarks.placement_guard import Guard, Standing, stand

__all__ = ["ZOO", "place_by_cost", "run"]

ZOO = (
    *("mlp_1", "mlp_64", "mlp_512", "lenet", "lstm", "gru", "tagger"),
    *("light_squeezenet", "light_shufflenet", "light_resnet50", "light_densenet121"),
    *("light_inception_v1", "light_inception_v2", "light_bvlc_alexnet", "light_zfnet512", "light_vgg19"),
    *("mobilenet_v2", "mobilenet_v3", "efficientnet_b0", "regnet", "resnext50", "convnext", "detector"),
    *("bert", "gpt2", "llama", "vit", "swin", "segformer", "audio_encoder", "quantised_convnet"),
)
PEERS = ("onnxruntime", "openvino")
SINGLES = ("ccompiler", "dnnl")
BY_COST, TUNED = "by cost", "tuned"
ENVIRONMENT = DNNL_ALONE
NUM_STARTS = 3
"""Fresh processes of an engine for each model."""
BUDGET_S = 0.2
"""Seconds of calls for an answer; a longer call is an answer of its own."""
ALLOWED_ERROR, ALLOWED_ERROR_QUANTISED = 1e-3, 0.1
"""The largest distance of outputs from the first peer's, over the largest output."""
PARTIAL = Path("out/placements.json")

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Contestant:
    """A way to compile a model.

    Attributes:
        name: the name of the engine, and of the artifact.
        build: a function compiling a model, given the inputs and the number of threads.
        is_per_threads: whether the result depends on the number of threads.
    """

    name: str
    build: Callable[[IRModule, Inputs, int], Executable]
    is_per_threads: bool = False


def list_contestants(tuned_s: float | None) -> tuple[Contestant, ...]:
    """Return the contestants of byoc: placement by cost, perhaps by measurement, and each backend alone.

    Args:
        tuned_s: the seconds of the search for a placement by measurement; without, there is none.
    """
    contestants = [
        Contestant(BY_COST, lambda module, _, num_threads: place_by_cost(module, num_threads), is_per_threads=True)
    ]
    if tuned_s is not None:
        contestants.append(
            Contestant(
                TUNED,
                lambda module, inputs, num_threads: (
                    byoc_core.tune(module, SINGLES, inputs, num_threads=num_threads, seconds=tuned_s).executable
                ),
                is_per_threads=True,
            )
        )
    return (*contestants, *map(_alone, SINGLES))


def place_by_cost(module: IRModule, num_threads: int) -> Executable:
    """Compile by all backends, for calls with a number of threads."""
    before = threads.num_threads()
    threads.set_num_threads(num_threads)
    try:
        return byoc_core.build(module, "auto")
    finally:
        threads.set_num_threads(before)


def _alone(backend: str) -> Contestant:
    return Contestant(backend, lambda module, _inputs, _num_threads: byoc_core.build(module, [backend]))


@dataclass
class _Figures:
    """The figures of all models measured so far, by number of threads."""

    placed: tuple[str, ...]
    details: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[int, dict[str, Mapping[str, Samples]]] = field(default_factory=dict)
    standings: dict[int, list[Standing]] = field(default_factory=dict)
    shares: dict[int, dict[str, Mapping[str, float]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return tables with a row for each model, for each number of threads, and the guard's lists."""
        tables: dict[str, Any] = {}
        guards: dict[str, Any] = {}
        for num_threads, standings in self.standings.items():
            guard, title = Guard(standings), _count(num_threads)
            times = self.seconds[num_threads]
            tables[f"{title}: times"] = {
                model: {name: Samples(tuple(1e3 * s for s in found.values)).to_json() for name, found in row.items()}
                for model, row in times.items()
            }
            rows = {standing.model: _ratios(standing) for standing in standings}
            for name, values in (("geometric mean", guard.means()), ("minimum", guard.minima())):
                rows[name] = {contestant: Samples((value,)) for contestant, value in values.items()}
            best = guard.mean_of_best_single()
            if best is not None:
                rows["geometric mean"]["best single"] = Samples((best,))
            tables[f"{title}: ratios"] = {
                model: {name: ratio.to_json() for name, ratio in row.items()} for model, row in rows.items() if row
            }
            tables[f"{title}: shares"] = {
                model: {backend: Samples((share,)).to_json() for backend, share in row.items()}
                for model, row in self.shares[num_threads].items()
            }
            guards[title] = {
                name: {"below the best single": guard.below_single(name), "below the peer": guard.below_peer(name)}
                for name in self.placed
            }
        return {"unit": "ms", "rows_are": "model", **tables, "guard": guards, "models": self.details}


def run(num_rounds: int, models: Sequence[str] | None = None, tuned_s: float | None = None) -> dict[str, Any]:
    """Return times, ratios, shares of FLOPs by backend, and the guard's lists.

    Args:
        num_rounds: the number of rounds.
        models: the names of the models; by default the whole zoo.
        tuned_s: the seconds of the search for a placement by measurement, for each model and number of threads.
    """
    check_names(models or ())
    contestants = list_contestants(tuned_s)
    peers = installed_peers(PEERS)
    figures = _Figures(tuple(c.name for c in contestants if c.name not in SINGLES))
    conditions = {
        "settings": {engine: SETTINGS[engine] for engine in ("byoc", *peers)},
        "environment": dict(ENVIRONMENT),
        "versions": describe_machine(tuple(DISTRIBUTIONS[peer] for peer in peers))["versions"],
    }
    effort = Effort(num_rounds, num_starts=NUM_STARTS, budget_s=BUDGET_S, least_calls=1)
    for name in models or ZOO:
        figures.details[name] = {}
        try:
            _measure_model(name, contestants, peers, effort, figures)
        except KeyboardInterrupt:
            print(f"  interrupted in {name}")
            break
        except (ByocError, RuntimeError, ValueError) as error:
            figures.details[name]["failure"] = str(error)
            print(f"  {name}: left out: {error}", flush=True)
        write_result(PARTIAL, {"placements": {**conditions, **figures.to_json()}})
    for num_threads, standings in figures.standings.items():
        _tell_guard(_count(num_threads), Guard(standings), figures.placed)
    return {**conditions, **figures.to_json()}


def _measure_model(
    name: str, contestants: Sequence[Contestant], peers: Sequence[str], effort: Effort, figures: _Figures
) -> None:
    model, inputs = load_model(name)
    module = byoc_core.from_onnx(model)
    details = figures.details[name]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        onnx.save(model, str(folder / "model.onnx"))
        np.savez(folder / "inputs.npz", **inputs)
        built: dict[str, _Built] = {}
        for num_threads in THREADS:
            for contestant in contestants:
                if contestant.is_per_threads or contestant.name not in built:
                    built[contestant.name] = _build(contestant, module, inputs, num_threads, folder)
            working = [contestant for contestant, found in built.items() if found.failure is None]
            environment = {**ENVIRONMENT, "OPENBLAS_NUM_THREADS": str(num_threads)}
            environments = {**dict.fromkeys(working, environment), **{peer: {} for peer in peers}}
            comparison = compare_engines(folder, environments, num_threads, effort, references=[*peers, *working])
            wrong = _list_wrong(name, comparison)
            seconds = {engine: samples for engine, samples in comparison.seconds.items() if engine not in wrong}
            programs = {contestant: found.program for contestant, found in built.items()}
            standing = stand(name, seconds, peers=peers, singles=SINGLES, placed=figures.placed, programs=programs)
            figures.seconds.setdefault(num_threads, {})[name] = seconds
            figures.standings.setdefault(num_threads, []).append(standing)
            figures.shares.setdefault(num_threads, {})[name] = built[BY_COST].shares
            failures = {contestant: found.failure for contestant, found in built.items() if found.failure is not None}
            details[_count(num_threads)] = {
                "errors": comparison.errors,
                "wrong": wrong,
                "failures": {**failures, **comparison.failures},
                "build seconds": {contestant: found.seconds for contestant, found in built.items()},
                "shares": {contestant: dict(found.shares) for contestant, found in built.items()},
                "better peer": standing.peer,
                "best single": standing.single,
            }
            _tell(num_threads, seconds, standing, built[BY_COST].shares)
            for engine, reason in {**failures, **comparison.failures}.items():
                print(f"    {engine} failed: {reason[:200]}", flush=True)
            for engine in wrong:
                print(f"    {engine} left out: error {comparison.errors[engine]:.1e} beside {comparison.reference}")


@dataclass(frozen=True)
class _Built:
    """A built contestant.

    Attributes:
        seconds: the seconds of the build.
        shares: the share of the FLOPs of each backend.
        program: the source of each module, and the shares.
        failure: the reason of a failure.
    """

    seconds: float
    shares: Mapping[str, float] = field(default_factory=dict)
    program: tuple[object, ...] = ()
    failure: str | None = None


def _build(contestant: Contestant, module: IRModule, inputs: Inputs, num_threads: int, folder: Path) -> _Built:
    """Build a contestant into the folder."""
    start = time.perf_counter()
    try:
        executable = contestant.build(module, inputs, num_threads)
    except ByocError as error:
        return _Built(time.perf_counter() - start, failure=str(error))
    executable.save(folder / f"{contestant.name}.byoc")
    shares = _read_shares(executable)
    program = (*(module.get_source() for module in executable.modules), *sorted(shares.items()))
    return _Built(time.perf_counter() - start, shares, program)


def _read_shares(executable: Executable) -> dict[str, float]:
    """Return the share of the FLOPs of each backend, and of the host; without those with no FLOPs."""
    rows = items_of(executable.report_data.get("backends"))
    return {str(row["name"]): float(row["share"]) for row in rows if row["share"]}


def _list_wrong(name: str, comparison: Comparison) -> list[str]:
    """Return the engines with outputs far from the reference's; numbers unequal to themselves are far."""
    allowed = ALLOWED_ERROR_QUANTISED if name.startswith("quantised") else ALLOWED_ERROR
    return [engine for engine, error in comparison.errors.items() if not error <= allowed]


def _ratios(standing: Standing) -> dict[str, Samples]:
    best = {"best single": standing.over_peer[standing.single]} if standing.peer and standing.single else {}
    against = {f"{name} against the best single": ratio for name, ratio in standing.over_single.items()}
    return {**standing.over_peer, **best, **against}


def _tell(num_threads: int, seconds: Mapping[str, Samples], standing: Standing, shares: Mapping[str, float]) -> None:
    times = ", ".join(f"{engine} {samples.median * 1e3:.3f}" for engine, samples in seconds.items())
    over_peer = ", ".join(f"{contestant} {ratio.median:.2f}" for contestant, ratio in standing.over_peer.items())
    over_single = ", ".join(f"{contestant} {ratio.median:.2f}" for contestant, ratio in standing.over_single.items())
    placement = ", ".join(f"{share:.0%} {backend}" for backend, share in shares.items())
    print(
        f"  {standing.model}, {_count(num_threads)}: {standing.peer} over {over_peer}; "
        f"{standing.single} over {over_single}; placement: {placement}; ms: {times}",
        flush=True,
    )


def _tell_guard(title: str, guard: Guard, placed: Sequence[str]) -> None:
    print(f"  {title}, {len(guard.standings)} models; the better peer over each, geometric mean (minimum):")
    minima = guard.minima()
    for contestant, mean in guard.means().items():
        print(f"    {contestant:12} {mean:.3f} ({minima[contestant]:.2f})")
    best = guard.mean_of_best_single()
    if best is not None:
        print(f"    {'best single':12} {best:.3f}")
    for contestant in placed:
        for label, lines in (
            ("slower than the best single backend", guard.below_single(contestant)),
            ("slower than the better peer", guard.below_peer(contestant)),
        ):
            print(f"    {contestant}: {label}: {len(lines)} models")
            for line in lines:
                print(f"      {line}")


def _count(num_threads: int) -> str:
    return f"{num_threads} thread{'s' * (num_threads > 1)}"
