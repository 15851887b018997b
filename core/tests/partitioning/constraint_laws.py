"""Laws of partition under constraints, and options drawn for a case."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fnmatch import fnmatchcase

from byoc_core.dims import evaluate
from byoc_core.ir import COMPOSITE, STRUCTURAL_OPS, Binding, Function, IRModule, TensorType
from byoc_core.partitioning import PartitionOptions

from core.tests.partitioning.graphs import Case

__all__ = ["GLOBS", "check_constraints", "draw_options", "ops_of"]

GLOBS = ("add", "m*", "nn.*", "*")


def ops_of(module: IRModule) -> dict[tuple[str, str], str]:
    """Return the op of each name, control flow and calls left out."""
    return {
        (function.name, binding.results[0].name): binding.op.name
        for function in module.functions.values()
        for binding in function.walk()
        if binding.op not in STRUCTURAL_OPS
    }


def draw_options(case: Case, rng: random.Random) -> PartitionOptions:
    """Draw constraints possible for a case: ops are forced only to supporting backends."""
    names = ["/".join(key) for key in sorted(ops_of(case.module))]
    claims = sorted(case.claims.items())
    force = dict.fromkeys(rng.sample(names, min(len(names), rng.randrange(4))), "host")
    if claims:
        name, backend = rng.choice(claims)
        force = {entry: other_backend for entry, other_backend in force.items() if not entry.endswith(f"/{name}")} | {
            name: backend
        }
    return PartitionOptions(
        force=force,
        stop_at=rng.sample(names, min(len(names), rng.randrange(3))),
        allow={name: rng.sample(GLOBS, rng.randrange(3)) for name in case.backends if rng.random() < 0.3},
        min_ops=rng.choice((0, 0, 2, 4)),
        min_flops=rng.choice((0, 0, 6, 12)),
        min_bytes=rng.choice((0, 0, 64, 300)),
        sideways=rng.random() < 0.5,
    )


def check_constraints(case: Case, after: IRModule, options: PartitionOptions, backend_of: Mapping[str, str]) -> None:
    """Check a partition against the constraints.

    Args:
        case: the partitioned case.
        after: the partition.
        options: the constraints.
        taken: the backend of each op inside a region, by name.
    """
    _check_force_and_allow(case, options, backend_of)
    _check_sizes(after, options)
    stops = {entry.partition("/")[2] for entry in options.stop_at}
    for function in case.module.functions.values():
        _check_stops(function, stops, options, backend_of)


def _check_force_and_allow(case: Case, options: PartitionOptions, backend_of: Mapping[str, str]) -> None:
    forced = {entry.rpartition("/")[2]: backend for entry, backend in options.force.items()}
    for name, backend in forced.items():
        assert backend_of.get(name, "host") == backend
    for (_, name), op in ops_of(case.module).items():
        if name in backend_of and name not in forced and backend_of[name] in options.allow:
            assert any(fnmatchcase(op, glob) for glob in options.allow[backend_of[name]])


def _check_sizes(after: IRModule, options: PartitionOptions) -> None:
    forced = {entry.rpartition("/")[2] for entry in options.force}
    for function in after.functions.values():
        if "Codegen" in function.attrs:
            ops = [b for b in function.walk() if b.op is not COMPOSITE]
            if forced.isdisjoint(b.results[0].name for b in ops):
                assert len(ops) >= options.min_ops
                flops = [evaluate(b.op.flops(b.context()), _ones(b)) for b in ops]
                nbytes = [evaluate(b.op.nbytes(b.context()), _ones(b)) for b in ops]
                assert sum(flops) >= options.min_flops
                assert sum(nbytes) >= options.min_bytes


def _ones(binding: Binding) -> dict[str, int]:
    types = [value.type for value in (*binding.operands, *binding.results)]
    return {name: 1 for type_ in types if isinstance(type_, TensorType) for name in type_.symbols}


def _check_stops(body: Function, stops: set[str], options: PartitionOptions, backend_of: Mapping[str, str]) -> None:
    """Check a single body: no offloaded op depends, by any path in the body, on the result of a stop."""
    forced = {entry.rpartition("/")[2] for entry in options.force}
    dependent: set[int] = set()
    for binding in body.bindings:
        names = {inner.results[0].name for region in binding.regions for inner in region.walk()}
        names.add(binding.results[0].name)
        if not dependent.isdisjoint(map(id, binding.operands)):
            assert backend_of.keys().isdisjoint(names - forced)
            dependent.update(map(id, binding.results))
        if not stops.isdisjoint(names):
            dependent.update(map(id, binding.results))
        for region in binding.regions:
            _check_stops(region, stops, options, backend_of)
