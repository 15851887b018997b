"""Times of ops, from profiles of a backend: measured ops, and rows for the database of measured ops."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median_low
from typing import Any

from byoc_core.artifact import Executable
from byoc_core.backend import BackendHandle, Estimate
from byoc_core.ir import Binding, Constant, IRModule
from byoc_core.measurements import Measurement
from byoc_core.measurements.keys import heaviest_op, op_family
from byoc_core.measurements.keys import op_key as measured_key
from byoc_core.measurements.setting import BackendSetting
from byoc_core.partitioning import PartitionRequest, Policy
from byoc_core.partitioning.op_sites import OpKey, bodies_of, members_of, op_key
from byoc_core.partitioning.policies.cost_model import BackendCosts, Sizes
from byoc_core.partitioning.policies.neighbours import Neighbours, Site, neighbours_of
from byoc_core.profiling import Peaks, Profile, RegionProfile, profile
from byoc_core.reporting.shares import items_of

__all__ = ["MeasuredOp", "RecordingPolicy", "measured_ops", "measurements_of", "repeated_profile"]

_SAMPLE_S = 2e-3
"""Seconds of a profile among others."""
_MIN_PROFILES = 6
_NOISE_S = 1e-7
"""The least seconds of a kernel: shorter kernels are mostly measurement."""
_SUMS = ("nn.conv", "nn.dense", "matmul")
"""The beginnings of the names of ops with inner products: several of these in a kernel would each need a kernel alone.
"""
_LONGEST_CHAIN = 8
"""Ops between an op replaced by a backend, and the op with a name in profiles."""


@dataclass
class RecordingPolicy:
    """Another policy, with a record of the module before and with claims.

    Attributes:
        policy: the other policy.
        module: the module before any claim; ``None`` before the first call.
        claimed: the module with claims.
    """

    policy: Policy
    module: IRModule | None = None
    claimed: IRModule | None = None

    def __call__(self, module: IRModule, request: PartitionRequest) -> IRModule:
        """Return the module with the claims of the other policy."""
        self.module = module
        self.claimed = self.policy(module, request)
        return self.claimed


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


def repeated_profile(
    executable: Executable, inputs: Mapping[str, Any], seconds: float, num_threads: int = 1, function: str = "main"
) -> tuple[Profile, int]:
    """Return a profile with the least seconds of each part and region in many short profiles, and their number.

    Other processes interrupt long calls, but seldom the same kernel each time.

    Args:
        executable: the model.
        inputs: of the calls.
        seconds: of the measurement, but at least six profiles.
        num_threads: of a call.
        function: the function to call.
    """

    def once(num_calls: int, warm_up: int) -> Profile:
        peaks = Peaks(0.0, 0.0)
        return profile(
            executable,
            inputs,
            function=function,
            num_calls=num_calls,
            warm_up=warm_up,
            num_threads=num_threads,
            peaks=peaks,
        )

    stop = time.perf_counter() + seconds
    least = once(5, 2)
    num_calls = max(2, round(_SAMPLE_S / max(least.seconds, 1e-6)))
    count = 0
    while count < _MIN_PROFILES or time.perf_counter() < stop:
        following = once(num_calls, 0)
        pairs = zip(least.regions, following.regions, strict=True)
        least = replace(least, regions=tuple(_least(*pair) for pair in pairs))
        count += 1
    return least, count


def _least(first: RegionProfile, other: RegionProfile) -> RegionProfile:
    """Return a region with the least seconds of each part, and the least rest."""
    parts = tuple(
        replace(part, seconds=min(part.seconds, second.seconds))
        for part, second in zip(first.parts, other.parts, strict=True)
    )
    rest = min(region.seconds - sum(part.seconds for part in region.parts) for region in (first, other))
    return replace(first, parts=parts, seconds=rest + sum(part.seconds for part in parts))


def measured_ops(found: Profile, backend: str, module: IRModule, *, scale: bool) -> Iterator[MeasuredOp]:
    """Yield the measured ops of a backend.

    The time of a part belongs to the op of the part with most work; to all convolutions and products of a part with
    several of these, by FLOPs. Other ops of the part are computed along. An op of constants alone comes last: the
    backend may have computed the op in advance.

    Args:
        found: a profile of the model.
        backend: the backend.
        module: the module before any claim; see :class:`RecordingPolicy`.
        scale: whether conversions inside of regions belong to the ops.
    """
    neighbours = neighbours_of(module)
    bindings = {
        op_key(source, op): op
        for source, body in bodies_of(module)
        for binding in body.bindings
        for op in members_of(binding)
    }
    sizes = Sizes(found.sizes)
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
            if len(keys) == 1:
                (key,) = keys.values()
                seconds = region.seconds / max(1.0, region.calls)
                yield MeasuredOp(key, bindings[key], neighbours.get(key, Site()).neighbours, seconds)
            continue
        hidden = _hidden_ops(region, keys, neighbours)
        for part in region.parts:
            listed = [keys[op.value] for op in part.ops if op.value in keys]
            ops = [*listed, *(key for reader in listed for key in hidden.get(reader, ()))]
            if not ops:
                continue
            if not part.calls:
                continue
            shares = _shares([(key, bindings[key]) for key in ops], sizes)
            for head, share in shares.items():
                heads[head] = heads.get(head, 0.0) + part.seconds * share / max(1.0, region.calls)
                followers[head] = max(followers[head], len(ops) - len(shares))
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


def _shares(ops: Sequence[tuple[OpKey, Binding]], sizes: Sizes) -> dict[OpKey, float]:
    """Return the shares of the ops of a kernel in the time of the kernel; ops computed along are left out."""
    work = {key: (_has_input(binding), *sizes.work(binding)) for key, binding in ops}
    sums = {key: sizes.work(binding)[0] for key, binding in ops if binding.op.name.startswith(_SUMS)}
    if sum(flops > 0 for flops in sums.values()) < 2:
        return {max(work, key=work.__getitem__): 1.0}
    total = sum(sums.values())
    return {key: flops / total for key, flops in sums.items()}


def _has_input(binding: Binding) -> bool:
    return any(not isinstance(operand, Constant) for operand in binding.operands)


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


def measurements_of(
    ops: Sequence[MeasuredOp],
    modules: RecordingPolicy,
    handle: BackendHandle,
    options: Mapping[str, object],
    sizes: Mapping[str, int],
    num_threads: int,
    samples: int,
) -> list[Measurement]:
    """Return rows for the database: a row for each op or composite claimed by a backend.

    Args:
        ops: the measured ops of the backend.
        modules: the modules of the measurement.
        handle: the backend.
        options: of the backend.
        sizes: the sizes of symbols in the measurement.
        num_threads: of a call.
        samples: the number of profiles.
    """
    assert modules.module is not None
    assert modules.claimed is not None
    setting = BackendSetting.of(handle, options, num_threads)
    context = replace(handle.context(modules.module, options), num_threads=num_threads)
    costs = BackendCosts(handle, context, None, Sizes(sizes))
    by_key = {op.key: op for op in ops}
    date = datetime.now(UTC).date().isoformat()
    rows = []
    for source, body in bodies_of(modules.claimed):
        for binding in body.bindings:
            members = [by_key.get(op_key(source, op)) for op in members_of(binding)]
            found = [op for op in members if op is not None]
            if binding.codegen != handle.name or len(found) < len(members):
                continue
            neighbours = Neighbours(found[0].neighbours.maker, found[-1].neighbours.reader)
            function = costs.function(binding, neighbours)
            estimate = costs.estimate(binding, neighbours)
            if function is None or not isinstance(estimate, Estimate):
                continue
            rows.append(
                Measurement(
                    **setting._asdict(),
                    schedule="",
                    key=measured_key(function),
                    op=heaviest_op(function).op.name,
                    family=op_family(function),
                    flops=Sizes(sizes).work(binding)[0],
                    nbytes=Sizes(sizes).work(binding)[1],
                    estimated=float(estimate.seconds),
                    seconds=_summed_seconds(found),
                    samples=samples,
                    date=date,
                )
            )
    return _medians(rows)


def _summed_seconds(ops: Sequence[MeasuredOp]) -> float:
    """Return the seconds of ops together; 0 if all are computed along with others."""
    seconds = [op.seconds for op in ops if op.seconds is not None]
    return max(sum(seconds), _NOISE_S) if seconds else 0.0


def _medians(rows: Sequence[Measurement]) -> list[Measurement]:
    """Return a row for each key: the median of equal ops of a model, with the samples of all."""
    groups: dict[str, list[Measurement]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    return [
        replace(group[0], seconds=median_low(row.seconds for row in group), samples=group[0].samples * len(group))
        for group in groups.values()
    ]
