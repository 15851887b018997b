"""A user's constraints on one module: the named ops, and the consequences for each backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

from byoc_core.backend.registry import HOST_NAME
from byoc_core.errors import OptionsError, PartitionError, near_names
from byoc_core.ir import COMPOSITE, STRUCTURAL_OPS, Binding, Function, IRModule
from byoc_core.partitioning.claiming.claim_filters import ClaimFilter, accept_all
from byoc_core.partitioning.claiming.claims import claims_of
from byoc_core.partitioning.constraints.dependents import find_dependents
from byoc_core.partitioning.constraints.options import PartitionOptions
from byoc_core.partitioning.log import PartitionLog
from byoc_core.partitioning.op_sites import OpKey, op_key, walk_ops
from byoc_core.pattern import Rejection

__all__ = ["Constraints"]

_MAX_SHOWN = 10
"""The maximum number of ops named in an error: a glob may stand for thousands."""


@dataclass(frozen=True)
class Constraints:
    """The constraints put on a module's ops by options.

    Attributes:
        forced: the backend required for an op (or the host), by the op's key.
        stopped: for each op depending on an op at which offloading stops, the name of the latter.
        options: the user's options.
        devices: the number of the device of an op, if not 0, by the op's key.
    """

    forced: Mapping[OpKey, str] = field(default_factory=dict)
    stopped: Mapping[OpKey, str] = field(default_factory=dict)
    options: PartitionOptions = field(default_factory=PartitionOptions)
    devices: Mapping[OpKey, int] = field(default_factory=dict)

    @classmethod
    def resolve(cls, options: PartitionOptions, module: IRModule, backends: Iterable[str]) -> Constraints:
        """Find the ops and backends named by options.

        Args:
            options: the user's options.
            module: a module with unique names; partitioned already, or not.
            backends: the names of the backends taking part.

        Raises:
            OptionsError: a backend takes no part, a name fits nothing, or two entries place one op differently.
        """
        _check_kind(options)
        names = list(dict.fromkeys(name for name in backends if name != HOST_NAME))
        for entry, backend in options.force.items():
            _check_backend(f"force `{entry}`", backend, [*names, HOST_NAME])
        for backend, globs in options.allow.items():
            if backend == HOST_NAME:
                raise OptionsError(f"allow `{backend}`", "the host takes all remaining ops and cannot be restricted")
            _check_backend(f"allow `{backend}`", backend, names)
            _check_ops(f"allow `{backend}`", globs, module)
        if not (options.force or options.stop_at or options.devices or options.devices_from):
            return cls(options=options)
        catalog = _Catalog(module)
        stops = {entry: catalog.find(f"stop_at `{entry}`", entry) for entry in options.stop_at}
        bindings = {id(b): b.results[0].name for found in stops.values() for named in found for b in named.bindings}
        stopped = find_dependents(module, bindings)
        return cls(
            _placed(options.force, "force", catalog), stopped, options, _device_numbers(options, catalog, module)
        )

    def claim_filter(self, backend: str) -> ClaimFilter:
        """Return the condition on requests to a backend; the condition holds for the host too."""
        globs = self.options.allow.get(backend)
        if not self.forced and not self.stopped and globs is None:
            return accept_all

        def refusal(source: str, binding: Binding) -> Rejection | None:
            key = op_key(source, binding)
            forced_backend = self.forced.get(key)
            if forced_backend is not None:
                return (
                    None
                    if forced_backend == backend
                    else Rejection("forced", f"the user forces the op to `{forced_backend}`")
                )
            if backend != HOST_NAME and key in self.stopped:
                return Rejection(
                    "stopped", f"the op depends on `{self.stopped[key]}`, and the user stops offloading there"
                )
            if globs is not None and not any(fnmatchcase(binding.op.name, glob) for glob in globs):
                return Rejection("not-allowed", f"the user does not allow `{binding.op.name}` for this backend")
            return None

        return refusal

    def keeps_on_host(self, source: str, name: str) -> bool:
        """Return whether the user wants an op, named by the first result, to stay on the host."""
        forced_backend = self.forced.get((source, name))
        return forced_backend == HOST_NAME or (forced_backend is None and (source, name) in self.stopped)

    def check_forced(self, module: IRModule, log: PartitionLog) -> None:
        """Check that every op forced to a backend is claimed by this backend.

        Args:
            module: after the policy, or partitioned.
            log: the refusals, for the reasons.

        Raises:
            PartitionError: an op is not claimed; names op, backend and the backend's reason.
        """
        if not self.forced:
            return
        ops = {op_key(site.source, site.binding): site.binding for site in walk_ops(module)}
        owners = {op_key(claim.source, op): claim.backend for claim in claims_of(module) for op in claim.ops}
        problems = []
        for key, backend in self.forced.items():
            owner = owners.get(key, HOST_NAME)
            if owner != backend:
                problems.append(
                    (_describe_op(key, ops[key]), f"is forced to `{backend}`, {_reason(key, backend, owner, log)}")
                )
        if problems:
            where, problem = problems[0]
            further_lines = [f"{where}: {problem}" for where, problem in problems[1:_MAX_SHOWN]]
            if len(problems) > _MAX_SHOWN:
                further_lines.append(f"and {len(problems) - _MAX_SHOWN} more ops")
            raise PartitionError(where, problem, detail="\n".join(further_lines) or None)

    def check_handover(self, source: str, binding: Binding, backend: str, refusal: Rejection) -> None:
        """Check that an op may be taken from a backend after a refusal by the backend's codegen.

        Raises:
            PartitionError: the op is forced to that backend.
        """
        key = op_key(source, binding)
        if self.forced.get(key) == backend:
            raise PartitionError(_describe_op(key, binding), f"is forced to `{backend}`, {_refused(refusal)}")


def _describe_op(key: OpKey, op: Binding) -> str:
    return f"op `{op.op.name}` at `{key[1]}` of function `{key[0]}`"


def _refused(rejection: Rejection) -> str:
    return f"but the backend refuses the op ({rejection.code}): {rejection.text}"


def _reason(key: OpKey, backend: str, owner: str, log: PartitionLog) -> str:
    if owner != HOST_NAME:
        return f"but `{owner}` has already claimed the op"
    refusals = [refusal for refusal in log.refusals(*key) if refusal.backend == backend]
    if not refusals:
        return "but the backend does not claim the op"
    rejection = next((r for r in refusals if not r.pattern), refusals[0]).rejection
    return _refused(rejection)


def _check_kind(options: object) -> None:
    if not isinstance(options, PartitionOptions):
        hint = "Create the options, for example `PartitionOptions(min_ops=3)`."
        raise OptionsError(
            "partition_options", "is not a PartitionOptions object", got=type(options).__name__, hint=hint
        )


def _check_backend(where: str, backend: str, names: Sequence[str]) -> None:
    if backend not in names:
        raise OptionsError(
            where,
            f"no backend `{backend}` takes part",
            expected=", ".join(names) or "none: no backend takes part",
            hint=near_names(backend, names) or None,
        )


def _check_ops(where: str, globs: Sequence[str], module: IRModule) -> None:
    own = (binding.op.name for function in module.functions.values() for binding in function.walk())
    op_names = {*module.ops, *own}
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in op_names):
            raise OptionsError(where, f"no op matches `{glob}`", hint=near_names(glob, op_names) or None)


_Owner = TypeVar("_Owner", str, int)


def _placed(owners: Mapping[str, _Owner], kind: str, catalog: _Catalog) -> dict[OpKey, _Owner]:
    """Return the owner of each named op, a backend or the number of a device; an exact name precedes a glob.

    Args:
        owners: the user's entries.
        kind: the name of the option.
        catalog: the names of the module.
    """
    verb = "forces" if kind == "force" else "places"
    placed: dict[OpKey, tuple[bool, str, _Owner]] = {}
    for entry, owner in owners.items():
        where, is_glob = f"{kind} `{entry}`", _is_glob(entry)
        for key in _keys_of(where, catalog.find(where, entry)):
            first_is_glob, first_entry, first_owner = placed.setdefault(key, (is_glob, entry, owner))
            if first_is_glob == is_glob and first_owner != owner:
                problem = f"{verb} `{key[1]}` to `{owner}`, but `{first_entry}` {verb} the op to `{first_owner}`"
                raise OptionsError(
                    where, problem, hint="An exact name takes precedence over a glob." if is_glob else None
                )
            if first_is_glob and not is_glob:
                placed[key] = is_glob, entry, owner
    return {key: owner for key, (_, _, owner) in placed.items()}


def _device_numbers(options: PartitionOptions, catalog: _Catalog, module: IRModule) -> dict[OpKey, int]:
    """Return the number of the device of each op placed on another device than 0."""
    found: dict[OpKey, int] = {}
    for entry, number in options.devices_from.items():
        where = f"devices_from `{entry}`"
        named = catalog.find(where, entry)
        origins = {id(binding): entry for item in named for binding in item.bindings}
        keys = [*_keys_of(where, named), *find_dependents(module, origins)]
        found.update(dict.fromkeys(keys, number))
    found.update(_placed(options.devices, "devices", catalog))
    return {key: number for key, number in found.items() if number}


def _keys_of(where: str, named: Iterable[_Named]) -> dict[OpKey, None]:
    """Return the ops of named values.

    Raises:
        OptionsError: there are no ops, because only calls have the name.
    """
    keys = {key: None for item in named for key in item.keys}
    if not keys:
        hint = "Name ops of the called function: `function/name`."
        raise OptionsError(where, "names only calls, and no backend takes calls", hint=hint)
    return keys


def _is_glob(entry: str) -> bool:
    return any(character in entry for character in "*?[")


@dataclass(slots=True)
class _Named:
    """The meaning of a name in a function: the bindings with the name, and the ops open to a backend."""

    bindings: list[Binding] = field(default_factory=list)
    keys: dict[OpKey, None] = field(default_factory=dict)


class _Catalog:
    """The values of a module by name; region functions count as parts of the original functions."""

    def __init__(self, module: IRModule) -> None:
        self._named: dict[str, dict[str, _Named]] = {}  # by the value's name, then by the function's
        self._module = module
        for function in module.functions.values():
            self._add(function, str(function.attrs.get("source", function.name)))

    def _add(self, function: Function, source: str) -> list[OpKey]:
        """Add a function's values and return the keys of all its ops."""
        keys: list[OpKey] = []
        for binding in function.bindings:
            inner = [key for region in binding.regions for key in self._add(region, source)]
            if binding.op not in STRUCTURAL_OPS:
                inner.append(op_key(source, binding))
            keys += inner
            callee = self._module.functions.get(str(binding.attrs.get("callee")))
            if callee is not None and "Codegen" in callee.attrs:
                keys += (op_key(source, op) for op in callee.walk() if op.op not in STRUCTURAL_OPS)
            for result in binding.results if binding.op is not COMPOSITE else ():
                named = self._named.setdefault(result.name, {}).setdefault(source, _Named())
                named.bindings.append(binding)
                named.keys.update(dict.fromkeys(inner))
        return keys

    def find(self, where: str, entry: str) -> list[_Named]:
        """Return the named values and ops of an entry.

        Raises:
            OptionsError: the entry fits nothing.
        """
        function, slash, name = entry.rpartition("/")
        function, name = function.removeprefix("%") or "*", name.removeprefix("%")
        found = list(self._find(function, name))
        if not found:
            names = [
                f"{source}/{value}" if slash else value for value, named in self._named.items() for source in named
            ]
            near = near_names(f"{function}/{name}" if slash else name, names)
            raise OptionsError(where, "matches no op", hint=near or "`byoc explain` prints the names.")
        return found

    def _find(self, function: str, name: str) -> Iterator[_Named]:
        values = [name] if not _is_glob(name) else [value for value in self._named if fnmatchcase(value, name)]
        for value in values:
            for source, named in self._named.get(value, {}).items():
                if fnmatchcase(source, function):
                    yield named
