"""The user's choices for a compilation, as a single value.

The names of the fields are the keys of request files and of the record in an artifact, and keywords of
:func:`byoc_core.build`. A new field also needs an entry in :class:`RequestFields`.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Self, TypedDict

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_serializer, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from byoc_core.backend import BackendHandle
from byoc_core.backend.registry import HOST_NAME, open_object
from byoc_core.driver.fallback import FALLBACKS, Fallback
from byoc_core.driver.lock import Lock
from byoc_core.driver.references import PassReference, object_name
from byoc_core.driver.request_errors import read_table, under_path
from byoc_core.driver.request_policy import policy_from_data, policy_schema, policy_to_data
from byoc_core.driver.request_schema import ObjectField, describe_fields, names_schema, passes_schema
from byoc_core.driver.specialising import Specialize
from byoc_core.driver.stages import INSERTION_POINTS, ModulePass
from byoc_core.driver.toml_text import to_toml
from byoc_core.errors import OptionsError, near_names
from byoc_core.partitioning import PartitionOptions, Policy
from byoc_core.partitioning.partition import check_backends, check_policy

AUTO = "auto"
"""In place of a list of backends: all installed backends able to compile here, placed by cost."""

__all__ = ["AUTO", "CompileRequest", "RequestFields", "gather_request"]


def _is_file(info: ValidationInfo) -> bool:
    return bool(info.context)


def _check_backends(value: object, info: ValidationInfo) -> tuple[str | object, ...]:
    if value == AUTO:
        return (AUTO,)
    check_backends(value)
    if not isinstance(value, Sequence):
        raise OptionsError("backends", "is not a list", got=repr(value))
    for index, item in enumerate(value if _is_file(info) else ()):
        if not isinstance(item, str):
            raise OptionsError(f"backends[{index}]", "is not a backend name", got=repr(item))
    return tuple(value)


def _check_fallback(value: object, info: ValidationInfo) -> object:
    if value not in FALLBACKS:
        raise OptionsError("fallback", "has an unknown value", got=repr(value), expected=" or ".join(FALLBACKS))
    return value


def _check_policy(value: object, info: ValidationInfo) -> object:
    if value is None:
        return None
    if _is_file(info):
        return policy_from_data(value)
    check_policy(value)
    return value


def _check_partition(value: object, info: ValidationInfo) -> object:
    return read_table(PartitionOptions, "partition", value, ".") if _is_file(info) else value


def _check_cost(value: object) -> object:
    if isinstance(value, int) and value < 0:
        raise OptionsError("max_fold_cost", "is negative", got=value)
    return value


def _check_dump(value: object) -> object:
    if value is None or isinstance(value, Path):
        return value
    if not isinstance(value, str):
        raise OptionsError("dump", "is not a path", got=repr(value))
    return Path(value)


def _check_specialize(value: object, info: ValidationInfo) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, Mapping | str) or not isinstance(value, Sequence):
        expected = '[{"n": 1}, {"n": 8}]'
        raise OptionsError("specialize", "is not a list of sets of sizes", got=repr(value), expected=expected)
    return tuple(dict(item) if isinstance(item, Mapping) else item for item in value)


def _check_lock(value: object, info: ValidationInfo) -> object:
    if value is None or isinstance(value, Lock | Path):
        return value
    if not isinstance(value, str):
        raise OptionsError("placement", "is neither a lock nor the path of a lock", got=repr(value))
    return Path(value)


def _check_passes(value: object, info: ValidationInfo) -> Mapping[str, tuple[ModulePass, ...]]:
    stages = [stage.value for stage in INSERTION_POINTS]
    if not isinstance(value, Mapping):
        raise OptionsError(
            "passes", "is not a mapping from stages", got=repr(value), expected=f"{{'{stages[1]}': [...]}}"
        )
    for stage, passes in value.items():
        if stage not in stages:
            hint = near_names(str(stage), stages) or None
            raise OptionsError(f"passes.{stage}", "is not a stage", expected=", ".join(stages), hint=hint)
        if isinstance(passes, str) or not isinstance(passes, Sequence):
            raise OptionsError(f"passes.{stage}", "is not a list of passes", got=repr(passes))
    return {
        str(stage): tuple(
            _check_pass(item, f"passes.{stage}[{index}]", info) for index, item in enumerate(value[stage])
        )
        for stage in stages
        if value.get(stage)
    }


def _check_pass(value: object, where: str, info: ValidationInfo) -> ModulePass:
    if _is_file(info) and isinstance(value, str):
        return PassReference.load(value, where)
    if isinstance(value, type):
        raise OptionsError(where, "is a class", got=value.__name__, expected=f"an instance: {value.__name__}()")
    if not callable(value):
        raise OptionsError(where, "is not a pass", got=repr(value), expected="a callable from module to module")
    transform: ModulePass = value
    return transform


class CompileRequest(BaseModel):
    """A user's choices for a compilation: backends and settings. Frozen; read from files by ``byoc compile --config``.

    A file is TOML or JSON (:meth:`from_file`). Python objects have names there: a backend its own, a policy
    ``"greedy"`` or ``{name = "cost", sizes = {n = 8}}``, a pass ``"package.module:NAME"``. The constraints are the
    table ``partition``.

    Attributes:
        backends: names or plugin objects; the first is asked first. Ops taken by none of the backends run on the host,
            all ops for an empty list. ``"auto"`` stands for all installed backends able to compile here, placed by
            :class:`ByCost` unless another policy or placement is given.
        options: each backend's options, by backend name.
        fallback: the reaction to ops staying on the host: ``"allow"`` (the report and the log give the reasons),
            ``"warn"``, or ``"error"``. Listing ``"host"`` among the backends permits such ops. A backend unable to
            compile on this machine takes nothing, with a warning.
        strict: whether an exception in a hook of a backend is an error, as with ``fallback="error"``. Otherwise the
            exception is a refusal by the backend: other backends and the host take over, a warning is given, and the
            report keeps the traceback.
        policy: the assignment of ops to backends; greedy by order by default.
        placement: a lock from :func:`byoc_core.tune`, or the path of a lock file, in place of a policy: each op goes to
            the backend of the lock, and nothing is measured. For ``"auto"``, the backends are the lock's. If
            machine or versions differ from the measurement's, a warning lists the differences.
        partition_options: constraints on the assignment: ops forced to a backend or the host, ends of offloading,
            allowed ops, smallest regions.
        max_fold_cost: the limit of bytes and FLOPs for computing constants; by default 512 Mi plus 16 for each byte of
            the module's constants. Computations above the limit stay in the program, with a message in the log.
        specialize: sets of sizes (``[{"n": 1}, {"n": 8}]``) to compile in advance, for regions with symbolic sizes on
            backends restricted to static shapes (``BackendInfo.dynamic_shapes``). Other sizes are compiled in the first
            call; 16 such sets are kept for each region. Sizes refused by the backend run on the host, logged once for
            each set; with ``fallback="error"`` refused sizes are an error of the call. An artifact holds the sets given
            here, and the host form for others; see ``respecializable`` of :meth:`Executable.save`. ``True`` compiles
            none in advance; with ``False`` these backends take no symbolic sizes.
        passes: passes of the user by stage: ``"before_partition"``, ``"after_partition"`` (between partition and
            codegen) or ``"after_codegen"``. The user's passes run after the passes of plugins, in the given order.
        dump: a folder for the printed module after every pass.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, arbitrary_types_allowed=True
    )

    backends: Annotated[Sequence[str | object], ObjectField(_check_backends, names_schema)] = (AUTO,)
    options: Mapping[str, Mapping[str, object]] = Field(default_factory=dict)
    fallback: Annotated[Fallback, ObjectField(_check_fallback, lambda: {"enum": list(FALLBACKS)})] = "allow"
    strict: bool = False
    policy: Annotated[Policy | None, ObjectField(_check_policy, policy_schema)] = None
    placement: Annotated[Path | Lock | None, ObjectField(_check_lock, lambda: {"type": ["string", "null"]})] = None
    partition_options: Annotated[PartitionOptions, BeforeValidator(_check_partition)] = Field(
        default_factory=PartitionOptions, validation_alias="partition"
    )
    max_fold_cost: Annotated[int | None, BeforeValidator(_check_cost)] = None
    specialize: Annotated[
        Specialize,
        ObjectField(
            _check_specialize,
            lambda: {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "object"}}]},
        ),
    ] = True
    passes: Annotated[Mapping[str, Sequence[ModulePass]], ObjectField(_check_passes, passes_schema)] = Field(
        default_factory=dict
    )
    dump: Annotated[Path | None, BeforeValidator(_check_dump)] = None

    @model_validator(mode="after")
    def _check_one_placement(self) -> Self:
        if self.placement is not None and self.policy is not None:
            raise OptionsError("placement", "is given beside `policy`", expected="a single way to place ops")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _explain_errors(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        with under_path("", cls):
            return handler(data)

    @property
    def is_strict(self) -> bool:
        """Whether an exception in a hook of a backend is an error."""
        return self.strict or self.fallback == "error"

    @property
    def forbids_host(self) -> bool:
        """Whether ops on the host without a constraint are an error."""
        return self.fallback == "error" and HOST_NAME not in self.backends

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a request from a file: JSON if the name ends with ``.json``, else TOML. Imports the named passes.

        Raises:
            OSError: the file cannot be read.
            OptionsError: the file is malformed, or a value does not fit; names the file and the path.
        """
        file = Path(path)
        text = file.read_bytes()
        kind, read = ("JSON", json.loads) if file.suffix == ".json" else ("TOML", tomllib.loads)
        try:
            data = read(text.decode())
        except ValueError as error:
            raise OptionsError(str(path), f"is malformed {kind}: {error}") from error
        with under_path(f"{path}: ", cls):
            return cls.from_data(data)

    @classmethod
    def from_data(cls, data: object) -> Self:
        """Return the request described by plain data: the content of a file, or an artifact's record.

        Raises:
            OptionsError: a value does not fit; names the path, as in ``partition.min_ops``.
        """
        return cls.model_validate(data, context={"is_file": True})

    def updated(self, **fields: Any) -> Self:
        """Return the request with other values of some fields.

        Raises:
            OptionsError: a value does not fit.
        """
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set} | fields)

    def to_toml(self) -> str:
        """Return the request as the text of a TOML file; :meth:`from_file` reads back an equal request.

        Raises:
            OptionsError: the request holds an object without a name for files, or a value outside TOML.
        """
        self._check_named()
        return to_toml(self.to_data())

    def to_json(self) -> str:
        """Return the request as the text of a JSON file; :meth:`from_file` reads back an equal request.

        Raises:
            OptionsError: the request holds an object without a name for files, or a value outside JSON.
        """
        self._check_named()
        try:
            return json.dumps(self.to_data(), indent=2) + "\n"
        except (TypeError, ValueError) as error:
            raise OptionsError("options", f"cannot be written as JSON: {error}") from error

    @model_serializer(mode="plain")
    def to_data(self) -> dict[str, Any]:
        """Return the request as plain data: objects by their names, options unchanged."""
        return {
            "backends": [_backend_name(backend) for backend in self.backends],
            "options": {name: dict(options) for name, options in self.options.items()},
            "fallback": self.fallback,
            "strict": self.strict,
            "policy": None if self.policy is None else policy_to_data(self.policy),
            "placement": _placement_name(self.placement),
            "partition": _plain(asdict(self.partition_options)),
            "max_fold_cost": self.max_fold_cost,
            "specialize": self.specialize if isinstance(self.specialize, bool) else [dict(s) for s in self.specialize],
            "passes": {stage: [object_name(item) for item in passes] for stage, passes in self.passes.items()},
            "dump": None if self.dump is None else str(self.dump),
        }

    def to_record(self, paths: Mapping[str, Collection[str]] = MappingProxyType({})) -> dict[str, Any]:
        """Return the record for artifacts: plain JSON values, without the machine's paths.

        The paths are ``dump``, ``placement``, and the database of a policy: the user's database stands in.

        Args:
            paths: options holding paths, by backend; left out like ``dump``.
        """
        data = self.to_data()
        del data["dump"], data["placement"]
        if isinstance(data["policy"], dict) and data["policy"].get("measurements"):
            data["policy"]["measurements"] = {}
        options = {
            backend: {name: value for name, value in backend_options.items() if name not in paths.get(backend, ())}
            for backend, backend_options in data["options"].items()
        }
        data["options"] = {backend: backend_options for backend, backend_options in options.items() if backend_options}
        return {name: _to_json(value) for name, value in data.items()}

    @classmethod
    def schema_data(cls) -> dict[str, Any]:
        """Return the JSON schema of files."""
        schema = cls.model_json_schema()
        names = {
            name: str(field.validation_alias) for name, field in cls.model_fields.items() if field.validation_alias
        }
        describe_fields(schema, cls, names)
        describe_fields(schema["$defs"][PartitionOptions.__name__], PartitionOptions, {})
        return schema

    def _check_named(self) -> None:
        objects = [(f"backends[{i}]", item) for i, item in enumerate(self.backends) if not isinstance(item, str)]
        if isinstance(name := None if self.policy is None else policy_to_data(self.policy), str) and ":" in name:
            objects.append(("policy", self.policy))
        if isinstance(self.placement, Lock):
            objects.append(("placement", self.placement))
        for stage, passes in self.passes.items():
            objects += [(f"passes.{stage}[{i}]", p) for i, p in enumerate(passes) if not isinstance(p, PassReference)]
        for where, item in objects:
            raise OptionsError(where, "is an object; files hold only names and plain values", got=object_name(item))


class RequestFields(TypedDict, total=False):
    """The fields of :class:`CompileRequest` except ``backends``, as keywords. ``None`` stands for the default."""

    options: Mapping[str, Mapping[str, object]] | None
    fallback: Fallback
    strict: bool
    policy: Policy | None
    placement: Lock | str | Path | None
    partition_options: PartitionOptions | None
    max_fold_cost: int | None
    specialize: Specialize
    passes: Mapping[str, Sequence[ModulePass]] | None
    dump: str | Path | None


def gather_request(
    request: CompileRequest | None,
    backends: Sequence[str | object] | None,
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> CompileRequest:
    """Return a request with its values overridden by separately given values.

    Args:
        request: the request; without one, the default.
        backends: the backends; ``None`` for those of the request.
        fields: values of :class:`RequestFields`; ``None`` stands for "not given".

    Raises:
        TypeError: a field is unknown.
        OptionsError: a value does not fit.
    """
    for name in fields:
        if name not in RequestFields.__annotations__:
            raise TypeError(
                f"unexpected keyword argument {name!r}; expected {', '.join(RequestFields.__annotations__)}"
            )
    overrides = {name: value for name, value in fields.items() if value is not None}
    if backends is not None:
        overrides["backends"] = backends
    base = CompileRequest() if request is None else request
    return base.updated(**overrides) if overrides else base


def _backend_name(backend: str | object) -> str:
    if isinstance(backend, str):
        return backend
    return backend.name if isinstance(backend, BackendHandle) else open_object(backend).name


def _placement_name(placement: Lock | Path | None) -> str | None:
    return None if placement is None else object_name(placement) if isinstance(placement, Lock) else str(placement)


def _plain(value: Any) -> Any:
    """Return a value with dicts for mappings and lists for sequences."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _to_json(value: Any) -> Any:
    """Return a value with everything outside JSON replaced by its name, or by its text for numbers."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return object_name(value)
