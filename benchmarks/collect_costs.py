"""Tables of costs for backends: measured ops of models and of single layers (``byoc_core.authoring.cost_table``).

    taskset -c 1 python -m benchmarks.collect_costs --backend ccompiler -o costs.json
    python -m benchmarks.collect_costs --check light_squeezenet lenet
    python -m benchmarks.collect_costs --choices

The first command builds models and layers with the backend alone, profiles each on one thread, and writes the table.
The time of a kernel belongs to the op with most work; the other ops of the kernel count as computed along with this op.
``--check`` prints the errors of the backends' estimates by op; ``--choices`` compares placements by cost with each
backend alone.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
from byoc_core.artifact import Executable
from byoc_core.authoring.cost_table import CostRow, CostTable, Setting
from byoc_core.errors import ByocError
from byoc_core.ir import Binding, IRModule
from byoc_core.partitioning import ByCost, GreedyByOrder, PartitionRequest
from byoc_core.partitioning.op_sites import OpKey, bodies_of, members_of, op_key
from byoc_core.partitioning.policies.neighbours import Neighbours, Site, neighbours_of
from byoc_core.profiling import Peaks, Profile, RegionProfile, measure_peaks, profile
from byoc_core.reporting.shares import items_of
from byoc_core.runtime.threads import set_num_threads
from byoc_core.tuning.race import race

from benchmarks.cost_layers import list_layers
from benchmarks.models import load_model
from benchmarks.zoo.bert import SIZES as BERT_SIZES
from benchmarks.zoo.bert import build_bert, draw_bert_inputs
from benchmarks.zoo.gpt2 import Gpt2Config, build_gpt2, draw_gpt2_inputs
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.llama import LlamaConfig, build_llama, draw_llama_inputs

__all__ = ["MODELS", "collect", "main"]

MODELS = (
    *("lenet", "mlp_1", "mlp_64", "mlp_512", "lstm", "lstm_stack", "gru", "lstm_20_1_64_64", "gru_30_8_64_128"),
    *("quantised_convnet", "quantised_mlp_1", "quantised_mlp_64"),
    *(
        "mobilenet_v2",
        "mobilenet_v3",
        "segformer",
        "vit",
        "swin",
        "bert",
        "bert_tiny",
        "gpt2",
        "gpt2_step",
        "llama",
        "llama_step",
    ),
    *(
        "light_squeezenet",
        "light_shufflenet",
        "light_resnet50",
        "light_densenet121",
        "light_inception_v1",
        "light_inception_v2",
        "light_bvlc_alexnet",
    ),
)
_SEED = 0
_MODEL_S, _LAYER_S = 1.0, 0.05
"""Seconds of the measurement of a model and of a layer."""
_SAMPLE_S = 2e-3
"""Seconds of a profile among others."""
_MIN_PROFILES = 6
_NOISE_S = 3e-7
"""Kernels below this time are mostly measurement: these count with this time as bound."""
_LONGEST_CHAIN = 8
"""Ops between an op replaced by a backend, and the op with a name in profiles."""
_MAX_ROWS = 160
"""Rows of an op in a table."""
_SAME = 0.35
"""Rows nearer than this, by features, are near duplicates."""
_CALL_S = 1e-6
"""A call of a region from the machine."""
_LARGE_NBYTES = 1 << 17
_CACHED_S = 2e-11
"""Seconds of a byte read from a cache: less is no change of layout."""
_GPT2 = Gpt2Config(num_layers=2, hidden=768, num_heads=12, vocabulary=5000, positions=256)
_LLAMA = LlamaConfig(num_layers=2, hidden=768, num_heads=12, cache_heads=4, inner=2048, vocabulary=5000, positions=256)


def _sized(model: onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """Return a model with fixed sizes."""
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                names = {name: str(size) for name, size in sizes.items()}
                text = " ".join(names.get(word, word) for word in dim.dim_param.split())
                numbers = [int(word) for word in text.split() if word.isdigit()]
                dim.dim_value = sum(numbers)
    return model


def load_sized(name: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model of this benchmark, with inputs."""
    style = STYLES["exported17"]
    if name == "bert_tiny":
        sizes = {"batch": 1, "sequence": 16}
        return _sized(build_bert(BERT_SIZES["tiny"], style), sizes), dict(
            draw_bert_inputs(BERT_SIZES["tiny"], sizes, _SEED)
        )
    sizes = (
        {"batch": 1, "sequence": 1, "past": 63} if name.endswith("_step") else {"batch": 1, "sequence": 64, "past": 0}
    )
    if name.startswith("gpt2"):
        return _sized(build_gpt2(_GPT2, style), sizes), draw_gpt2_inputs(_GPT2, sizes, _SEED)
    if name.startswith("llama"):
        return _sized(build_llama(_LLAMA, style), sizes), draw_llama_inputs(_LLAMA, sizes, _SEED)
    return load_model(name)


@dataclass
class _Greedy:
    """A greedy policy remembering the module."""

    module: IRModule | None = None

    def __call__(self, module: IRModule, request: PartitionRequest) -> IRModule:
        self.module = module
        return GreedyByOrder()(module, request)


@dataclass
class _Findings:
    """Measured ops of a backend.

    Attributes:
        rows: ops with kernels.
        shares: kernels and ops by op and setting.
        borders: op of a region, bytes crossing the borders, and seconds of the region outside of the op.
    """

    rows: list[CostRow] = field(default_factory=list)
    shares: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    borders: list[tuple[str, float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class MeasuredOp:
    """An op of a profiled model.

    Attributes:
        key: function and name.
        binding: the op.
        neighbours: in the model.
        seconds: of the kernel of the op; ``None`` if computed along with another op.
        followers: the number of further ops of the kernel.
    """

    key: OpKey
    binding: Binding
    neighbours: Neighbours
    seconds: float | None
    followers: int = 0


def measure_module(
    module: IRModule, inputs: Mapping[str, Any], backend: str, seconds: float, *, scale: bool
) -> tuple[list[MeasuredOp], Profile]:
    """Return the measured ops of a module on a backend alone, and the profile.

    Args:
        module: the model.
        inputs: of the calls.
        backend: the backend.
        seconds: of the measurement.
        scale: whether conversions inside of regions belong to the ops.
    """
    policy = _Greedy()
    executable = byoc_core.build(module, [backend], policy=policy)
    found = _profile_often(executable, inputs, seconds)
    assert policy.module is not None
    neighbours = neighbours_of(policy.module)
    bindings = {
        op_key(source, op): op
        for source, body in bodies_of(policy.module)
        for binding in body.bindings
        for op in members_of(binding)
    }
    return list(_measured_ops(found, backend, bindings, neighbours, scale=scale)), found


def _profile_often(executable: Executable, inputs: Mapping[str, Any], seconds: float) -> Profile:
    """Return a profile with the least seconds of each part and region in many short profiles.

    Other processes interrupt long calls, but seldom the same kernel each time.
    """

    def once(num_calls: int, warm_up: int) -> Profile:
        return profile(executable, inputs, num_calls=num_calls, warm_up=warm_up, num_threads=1, peaks=Peaks(0.0, 0.0))

    stop = time.perf_counter() + seconds
    least = once(5, 2)
    num_calls = max(2, round(_SAMPLE_S / max(least.seconds, 1e-6)))
    count = 0
    while count < _MIN_PROFILES or time.perf_counter() < stop:
        following = once(num_calls, 0)
        pairs = zip(least.regions, following.regions, strict=True)
        least = replace(least, regions=tuple(_least(*pair) for pair in pairs))
        count += 1
    return least


def _least(first: RegionProfile, other: RegionProfile) -> RegionProfile:
    """Return a region with the least seconds of each part, and the least rest."""
    parts = tuple(
        replace(part, seconds=min(part.seconds, second.seconds))
        for part, second in zip(first.parts, other.parts, strict=True)
    )
    rest = min(region.seconds - sum(part.seconds for part in region.parts) for region in (first, other))
    return replace(first, parts=parts, seconds=rest + sum(part.seconds for part in parts))


def _measured_ops(
    found: Profile,
    backend: str,
    bindings: Mapping[OpKey, Binding],
    neighbours: Mapping[OpKey, Site],
    *,
    scale: bool,
) -> Iterator[MeasuredOp]:
    sites: dict[str, list[OpKey]] = {}
    for row in items_of(found.report.get("ops")):
        if row.get("region"):
            sites.setdefault(str(row["region"]), []).append((str(row["function"]), str(row["name"])))
    for region in found.regions:
        if region.backend != backend:
            continue
        keys = {key[1]: key for key in sites.get(region.name, ()) if key in bindings}
        heads: dict[OpKey, float] = {}
        followers: Counter[OpKey] = Counter()
        if not any(part.ops for part in region.parts):
            continue
        hidden = _hidden_ops(region, keys, neighbours)
        for part in region.parts:
            listed = [keys[op.value] for op in part.ops if op.value in keys]
            ops = [*listed, *(key for reader in listed for key in hidden.get(reader, ()))]
            if not ops:
                continue
            head = max(ops, key=lambda key: _work(bindings[key]))
            if not part.calls:
                continue
            heads[head] = heads.get(head, 0.0) + part.seconds / max(1.0, region.calls)
            followers[head] = max(followers[head], len(ops) - 1)
        own, total = sum(heads.values()), region.seconds / max(1.0, region.calls)
        factor = min(total / own, 3.0) if scale and own else 1.0
        for key in keys.values():
            time_of_op = heads.get(key)
            yield MeasuredOp(
                key,
                bindings[key],
                neighbours.get(key, Site()).neighbours,
                None if time_of_op is None else time_of_op * factor,
                followers[key],
            )


def _hidden_ops(
    region: RegionProfile, keys: Mapping[str, OpKey], neighbours: Mapping[OpKey, Site]
) -> dict[OpKey, list[OpKey]]:
    """Return the ops named by no part, by the first op named by a part in the chain of readers.

    A backend may replace an op together with the ops around by another op, and name the last op only.
    """
    named = {op.value for part in region.parts for op in part.ops}
    found: dict[OpKey, list[OpKey]] = {}
    for name, key in keys.items():
        reader = name
        for _ in range(_LONGEST_CHAIN):
            if reader not in keys or reader in named:
                break
            reader = neighbours.get(keys[reader], Site()).reader
        if name not in named and reader in named and reader in keys:
            found.setdefault(keys[reader], []).append(key)
    return found


def _work(binding: Binding) -> tuple[float, float]:
    row = CostRow.of(binding)
    return (0.0, 0.0) if row is None else (row.flops, row.nbytes)


def collect(backend: str, models: Sequence[str], *, layers: bool = True) -> CostTable:
    """Return the table of a backend, from models and single layers."""
    peaks = measure_peaks(1)
    findings = _Findings()
    for name in models:
        start = time.perf_counter()
        try:
            model, inputs = load_sized(name)
            ops, _ = measure_module(byoc_core.from_onnx(model), inputs, backend, _MODEL_S, scale=True)
        except (ByocError, ValueError, KeyError) as error:
            print(f"  {name}: left out: {str(error)[:200]}", flush=True)
            continue
        _add(findings, ops)
        print(f"  {name}: {len(ops)} ops, {time.perf_counter() - start:.1f} s", flush=True)
    start = time.perf_counter()
    for name, module, inputs in list_layers() if layers else ():
        try:
            ops, found = measure_module(module, inputs, backend, _LAYER_S, scale=False)
        except ByocError as error:
            print(f"  {name}: left out: {str(error)[:200]}", flush=True)
            continue
        _add(findings, [replace(op, neighbours=Neighbours()) for op in ops])
        for region in found.regions:
            if region.backend == backend and region.parts:
                with_ops = sum(part.seconds for part in region.parts if part.ops)
                findings.borders.append((name.split()[0], region.nbytes, region.seconds - with_ops))
    print(f"  layers: {time.perf_counter() - start:.1f} s; {len(findings.rows)} measured ops in all", flush=True)
    rows = [row for group in _by_op(findings.rows).values() for row in _thinned(group)]
    borders = _borders(findings.borders)
    for op, per_byte in borders.items():
        print(f"  borders of {op}: {per_byte * 1e9:.3f} ns for each byte")
    shares = _summed_shares(findings.shares)
    return CostTable(round(peaks.flops), round(peaks.bandwidth), tuple(rows), shares, _CALL_S, borders)


def _add(findings: _Findings, ops: Sequence[MeasuredOp]) -> None:
    for op in ops:
        setting = Setting(*op.neighbours)
        if setting != Setting():
            counts = findings.shares.setdefault((op.binding.op.name, *setting), [0, 0])
            counts[0] += op.seconds is not None
            counts[1] += 1
        if op.seconds is not None:
            row = CostRow.of(op.binding, max(op.seconds, _NOISE_S / 3), (), op.neighbours.maker)
            if row is not None:
                findings.rows.append(row)


def _summed_shares(shares: Mapping[tuple[str, str, str], Sequence[int]]) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Return the shares with sums over readers, makers and both; settings equal to the sum are left out."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for (op, maker, reader), counts in shares.items():
        for key in ((op, maker, "*"), (op, "*", reader), (op, "*", "*")):
            total = sums.setdefault(key, [0, 0])
            total[0] += counts[0]
            total[1] += counts[1]
    rows_left = {key: (counts[0], counts[1]) for key, counts in shares.items()}
    return {**rows_left, **{key: (counts[0], counts[1]) for key, counts in sums.items() if counts[1] > 1}}


def _by_op(rows: Sequence[CostRow]) -> dict[str, list[CostRow]]:
    groups: dict[str, list[CostRow]] = {}
    for row in rows:
        groups.setdefault(row.op, []).append(row)
    return dict(sorted(groups.items()))


def _thinned(rows: Sequence[CostRow]) -> list[CostRow]:
    """Return the medians of equal rows, without near duplicates, spread over the features."""
    equal: dict[CostRow, list[float]] = {}
    for row in rows:
        equal.setdefault(replace(row, seconds=0.0), []).append(row.seconds)
    merged = [replace(row, seconds=statistics.median(seconds)) for row, seconds in equal.items()]
    merged.sort(key=lambda row: (row.flops, row.nbytes, row.dtypes, row.attributes, row.shapes, row.maker))
    features = np.array([row.features for row in merged])
    texts = [(row.dtypes, row.attributes, row.maker) for row in merged]
    rows_left: list[int] = []
    least = np.full(len(merged), np.inf)
    while len(rows_left) < min(_MAX_ROWS, len(merged)):  # the farthest row from all rows_left rows comes next
        following = int(np.argmax(least)) if rows_left else 0
        if least[following] < _SAME:
            break
        rows_left.append(following)
        distances = np.abs(features - features[following]).sum(axis=1)
        distances += [0.0 if text == texts[following] else 0.5 for text in texts]
        least = np.minimum(least, distances)
    return [merged[index] for index in sorted(rows_left)]


def _borders(borders: Sequence[tuple[str, float, float]]) -> dict[str, float]:
    """Return the seconds for a byte by op: medians of large regions of one op."""
    found: dict[str, list[float]] = {}
    for op, nbytes, seconds in borders:
        if nbytes > _LARGE_NBYTES:
            found.setdefault(op, []).append(seconds / nbytes)
    medians = {op: statistics.median(values) for op, values in sorted(found.items())}
    return {op: float(f"{value:.3g}") for op, value in medians.items() if value > _CACHED_S}


def check(models: Sequence[str], backends: Sequence[str]) -> None:
    """Print the estimates of the backends over the measured times: quartiles by op, and sums of models."""
    for backend in backends:
        handle = byoc_core.backends.get(backend)
        ratios: dict[str, list[tuple[float, float]]] = {}
        for name in models:
            model, inputs = load_sized(name)
            module = byoc_core.from_onnx(model)
            try:
                ops, _ = measure_module(module, inputs, backend, _MODEL_S, scale=True)
            except ByocError as error:
                print(f"  {name}: left out: {str(error)[:200]}")
                continue
            total, expected_total = 0.0, 0.0
            for op in ops:
                expected = _expected(handle, module, op)
                if expected is None:
                    continue
                total += op.seconds or 0.0
                expected_total += expected
                ratios.setdefault(op.binding.op.name, []).append((expected, op.seconds or 0.0))
            print(
                f"  {backend}, {name}: {total * 1e3:.3f} ms measured, "
                f"{expected_total / max(total, 1e-12):.2f} times as much expected",
                flush=True,
            )
        print(f"  {backend}: expected over measured seconds by op; quartiles over ops with kernels, then the sums")
        for op_name, pairs in sorted(ratios.items(), key=lambda item: -sum(pair[1] for pair in item[1])):
            alone = sorted(math.log(expected / seconds) for expected, seconds in pairs if seconds and expected)
            sums = [sum(pair[index] for pair in pairs) for index in (0, 1)]
            quartiles = " ".join(f"{math.exp(alone[len(alone) * q // 4]):6.2f}" for q in (1, 2, 3)) if alone else ""
            print(
                f"    {op_name:24} {len(pairs):5} ops, {len(alone):5} with kernels {quartiles:21} "
                f"{sums[0] * 1e6:10.1f} us against {sums[1] * 1e6:10.1f} us"
            )


def _expected(handle: Any, module: IRModule, op: MeasuredOp) -> float | None:
    from byoc_core.partitioning.policies.cost_model import as_function

    function = as_function(op.binding, handle.name, op.neighbours)
    answer = handle.estimate(function, handle.context(module, {}))
    return None if answer is None else float(answer.seconds)


def choices(models: Sequence[str], backends: Sequence[str], num_rounds: int = 7) -> None:
    """Print the placements by cost against each backend alone, measured in turn."""
    set_num_threads(1)
    for name in models:
        model, inputs = load_sized(name)
        module = byoc_core.from_onnx(model)
        runners: dict[str, Any] = {}
        takers: dict[str, Mapping[str, int]] = {}
        for label, listed, policy in (
            *((backend, [backend], None) for backend in backends),
            ("by cost", list(backends), ByCost()),
        ):
            try:
                executable = byoc_core.build(module, listed, policy=policy)
            except ByocError as error:
                print(f"  {name}: {label} fails: {str(error)[:200]}")
                continue
            takers[label] = Counter(str(row["outcome"]) for row in items_of(executable.report_data.get("ops")))
            call = byoc_core.VirtualMachine(executable, num_threads=1)["main"]
            runners[label] = partial(call, *(inputs[param.name] for param in call.params))
        if "by cost" not in runners or len(runners) < 2:
            continue
        samples = race(runners, num_rounds)
        medians = {label: statistics.median(values) for label, values in samples.items()}
        best = min((label for label in medians if label != "by cost"), key=medians.__getitem__)
        ratio = statistics.median(a / b for a, b in zip(samples["by cost"], samples[best], strict=True))
        times = ", ".join(f"{label} {seconds * 1e3:.3f} ms" for label, seconds in medians.items())
        ops_text = ", ".join(f"{count} {label}" for label, count in sorted(takers["by cost"].items()))
        print(f"  {name}: {times}; by cost over {best}: {ratio:.2f} ({ops_text})", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--backend", action="append", help="the backend to measure or check; may be repeated")
    parser.add_argument("-o", "--output", type=Path, help="the table to write")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="models to measure")
    parser.add_argument("--check", nargs="*", metavar="MODEL", help="print the errors of estimates")
    parser.add_argument("--choices", nargs="*", metavar="MODEL", help="compare placements by cost with single backends")
    options = parser.parse_args(arguments)
    backends = options.backend or ["ccompiler", "dnnl"]
    if options.check is not None:
        check(options.check or MODELS, backends)
    if options.choices is not None:
        choices(options.choices or MODELS, backends)
    if options.output is not None:
        if len(backends) != 1:
            parser.error("a table is of one backend: --backend NAME")
        table = collect(backends[0], options.models)
        options.output.write_text(table.to_text(), encoding="utf-8")
        print(f"{options.output}: {len(table.rows)} rows, {options.output.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
