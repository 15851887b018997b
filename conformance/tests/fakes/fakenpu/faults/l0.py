"""Faults caught by tests of level 0; importable by a run half without the compile side."""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, field_validator

from fakenpu.faults.fault import Change, Fault

if TYPE_CHECKING:
    from byoc_core.backend.hooks import BackendInfo, Status
    from byoc_core.pattern import CompositePattern


def _hook(function: Callable[..., object]) -> Any:
    from byoc_core.plugin.markers import hookimpl

    return hookimpl(function)


def _declares(**fields: object) -> Change:
    """Change fields of the backend's info."""

    def change(names: dict[str, Any]) -> None:
        info = names["byoc_backend_info"]()

        @_hook
        def byoc_backend_info() -> BackendInfo:
            return replace(info, **fields)  # type: ignore[no-any-return]

        names["byoc_backend_info"] = byoc_backend_info

    return change


class _UndescribedOptions(BaseModel):
    effort: int = Field(1, ge=0, le=3)


class _OptionsWithBadDefault(BaseModel):
    effort: int = Field(7, ge=0, le=3, description="how hard to try")


class _Tuning(BaseModel):
    tries: int = Field(1, description="how often")


class _OptionsIgnoringKeys(BaseModel):
    tuning: _Tuning = Field(_Tuning(tries=1), description="how to search")


class _OptionsThatRaise(BaseModel):
    speed: str = Field("fast", description="how fast")

    @field_validator("speed")
    @classmethod
    def check_speed(cls, value: str) -> str:
        return {"fast": "fast", "slow": "slow"}[value]


def _claims_a_file_format(names: dict[str, Any]) -> None:
    del names["byoc_load_file"]  # the format that it gives is claimed all the same


def _misspells_a_hook(names: dict[str, Any]) -> None:
    def byoc_suports(binding: object) -> bool:
        return True

    names["byoc_suports"] = byoc_suports


def _shuffles_its_patterns(names: dict[str, Any]) -> None:
    from byoc_core.pattern import CompositePattern, is_const, is_op, wildcard

    patterns, times = names["byoc_patterns"], itertools.count()
    dense = is_op("nn.dense")(wildcard().has_dtype("float32").has_rank(2), is_const())

    @_hook
    def byoc_patterns() -> Sequence[CompositePattern]:
        both = [*patterns(), CompositePattern("fakenpu.dense", dense)]
        return both if next(times) % 2 else both[::-1]

    names["byoc_patterns"] = byoc_patterns


def _sets_the_environment(names: dict[str, Any]) -> None:
    from byoc_core.runtime.hooks import Status

    @_hook
    def byoc_compile_status() -> Status:
        os.environ["FAKENPU_THREADS"] = "1"
        return Status(ok=True)

    names["byoc_compile_status"] = byoc_compile_status


def _knows_no_remedy(names: dict[str, Any]) -> None:
    from byoc_core.runtime.hooks import Status

    @_hook
    def byoc_runtime_status() -> Status:
        return Status(ok=False, reason="the driver is too old")

    names["byoc_runtime_status"] = byoc_runtime_status


def _imports_the_compile_half(names: dict[str, Any]) -> None:
    importlib.import_module("fakenpu.backend")


def _caught_by(promise: str, compile_half: Change | None = None, run_half: Change | None = None) -> Fault:
    return Fault(frozenset({f"L0-{promise}"}), compile_half, run_half)


FAULTS: Mapping[str, Fault] = {
    "allows-any-core": Fault(frozenset({"L0-core-range"}), metadata={"requires": "byoc-core>=0.1"}),
    "has-no-version": Fault(frozenset({"L0-version"}), metadata={"version": "newest"}),
    "brings-a-runtime-that-is-not-there": Fault(
        frozenset({"L0-runtimes-open"}),
        metadata={"runtimes": "fakenpu = fakenpu.runtime\nfakenpu_old = fakenpu.old_runtime"},
    ),
    "run-half-imports-compile-half": _caught_by("run-half-alone", run_half=_imports_the_compile_half),
    "declares-a-word-for-a-flag": _caught_by("info-fields", _declares(deterministic="mostly")),
    "declares-a-file-format-without-loader": _caught_by("runtime-info", run_half=_claims_a_file_format),
    "misspells-a-hook": _caught_by("hook-names", _misspells_a_hook),
    "shuffles-its-patterns": _caught_by("answers-repeat", _shuffles_its_patterns),
    "hides-an-option": _caught_by("options-described", _declares(options=_UndescribedOptions)),
    "refuses-its-own-default": _caught_by("options-defaults", _declares(options=_OptionsWithBadDefault)),
    "forgets-unknown-keys": _caught_by("options-unknown-keys", _declares(options=_OptionsIgnoringKeys)),
    "raises-for-a-bad-option": _caught_by("options-bad-values", _declares(options=_OptionsThatRaise)),
    "status-sets-the-environment": _caught_by("compile-status", _sets_the_environment),
    "status-without-remedy": _caught_by("runtime-status", run_half=_knows_no_remedy),
    "states-a-precision-that-is-none": Fault(
        frozenset({"L0-lint", "L2-stated-precision"}), _declares(unit_roundoff={"float32": 2.0})
    ),
}
