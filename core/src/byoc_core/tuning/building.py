"""Builds of placements in other processes, by any :class:`concurrent.futures.Executor`: each makes an artifact."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from byoc_core.artifact import Executable
from byoc_core.artifact.saving import to_bytes
from byoc_core.driver import Compiler, CompileRequest
from byoc_core.ir import IRModule
from byoc_core.tuning.candidates import PlacementKey, placement_of, placement_tuple, schedules_of
from byoc_core.tuning.contents import ContentStore, PackedModel

__all__ = ["BuiltPlacement", "PlacementBuild", "build_placement", "build_request"]


@dataclass(frozen=True)
class PlacementBuild:
    """A model to be compiled in a placement.

    Attributes:
        name: for messages.
        digest: of the model.
        request: the request as plain data, without placement; the backends are named.
        policy: the policy of the placement, in the form of request files.
        model: the model, if the worker may not have the model.
    """

    name: str
    digest: str
    request: Mapping[str, Any]
    policy: Any
    model: PackedModel | None = field(default=None, repr=False)

    def with_model(self, model: PackedModel) -> Self:
        """Return the build with the model."""
        return replace(self, model=model)


@dataclass(frozen=True)
class BuiltPlacement:
    """A compiled placement.

    Attributes:
        artifact: the bytes of the artifact.
        ops: the backend of each op.
        schedules: the chosen schedules, by op.
    """

    artifact: bytes = field(repr=False)
    ops: Mapping[str, str]
    schedules: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, executable: Executable, schedules: Mapping[str, str]) -> Self:
        """Pack an executable; regions compiled at first use take along the data to be compiled from.

        Raises:
            RuntimeNotFoundError: the runtime saving a region is not installed.
            PluginError: the runtime cannot save.
        """
        content = to_bytes(executable.as_saved(respecializable=True))
        return cls(content, placement_of(executable.report_data), dict(schedules))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the artifact."""
        return hashlib.sha256(self.artifact).hexdigest()

    @property
    def key(self) -> PlacementKey:
        """The placement and the schedules as a key."""
        return placement_tuple(self.ops, self.schedules)


def build_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain data of a request for builds elsewhere, without policy, placement and paths of this machine."""
    return {name: value for name, value in request.items() if name not in ("policy", "placement", "dump")}


_models: ContentStore[IRModule] = ContentStore()


def build_placement(build: PlacementBuild) -> BuiltPlacement:
    """Compile a placement in this process.

    Raises:
        MissingContentError: this process does not have the model, and the build does not bring the model.
        ByocError: the placement cannot be compiled or saved.
    """
    module = _models.get(build.digest, None if build.model is None else build.model.unpack)
    policy = CompileRequest.from_data({"policy": build.policy}).policy
    executable = Compiler().build(module, CompileRequest.from_data(dict(build.request)).updated(policy=policy))
    return BuiltPlacement.of(executable, schedules_of(policy))
