"""The passes of a compilation: passes of the core, of plugins, and of the user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from byoc_core.backend import BackendHandle
from byoc_core.driver.compilation import Compilation
from byoc_core.driver.frozen import keep_frozen
from byoc_core.driver.stages import HOOKS, ModulePass, Stage
from byoc_core.errors import ByocError, PassError, VerifyError, type_name
from byoc_core.ir import IRModule, verify
from byoc_core.ir.snapshot import Snapshot
from byoc_core.partitioning import PeelViews, PlanLayouts, RunCodegen
from byoc_core.transform import FoldConstants, Pass, UniqueNames, default_passes, pass_name

__all__ = ["inserted_passes", "left_passes", "named", "pass_names", "prepare_passes"]


def pass_names(compilation: Compilation) -> tuple[str, ...]:
    """Return the names of the passes run by a compilation, in order, if all its backends can compile here."""
    backends = compilation.offload_backends
    return (
        *map(pass_name, prepare_passes(compilation, backends)),
        *([Stage.PARTITION.value] if backends else []),
        *map(pass_name, left_passes(compilation, backends)),
        Stage.PARTITION_HOST.value,
        PlanLayouts.__name__,
        PeelViews.__name__,
        RunCodegen.__name__,
        *map(pass_name, inserted_passes(compilation, Stage.AFTER_CODEGEN, backends)),
    )


def prepare_passes(compilation: Compilation, backends: Sequence[BackendHandle]) -> list[ModulePass]:
    """Return the passes before partition.

    Args:
        compilation: the compilation.
        backends: the backends allowed to claim ops.
    """
    return [
        *default_passes(
            keep_quantised=_keeps_quantised(backends),
            max_fold_cost=compilation.request.max_fold_cost,
        ),
        *inserted_passes(compilation, Stage.BEFORE_PARTITION, backends),
        UniqueNames(),
    ]


def left_passes(compilation: Compilation, backends: Sequence[BackendHandle]) -> list[ModulePass]:
    """Return the passes between the partition for backends and the partition for the host.

    Quantised constants which no backend claimed are dequantised here, once.
    """
    return [
        *([FoldConstants(max_cost=compilation.request.max_fold_cost)] if _keeps_quantised(backends) else []),
        *inserted_passes(compilation, Stage.AFTER_PARTITION, backends),
    ]


def inserted_passes(compilation: Compilation, stage: Stage, backends: Iterable[BackendHandle]) -> list[ModulePass]:
    """Return the passes of an insertion point: passes of plugins in the order of backends, then passes of the user."""
    hook = HOOKS[stage]
    plugins = [_plugin_pass(compilation, stage, handle) for handle in backends if handle.implements(hook)]
    user_passes = compilation.request.passes.get(stage, ())
    return [
        *plugins,
        *(_UserPass(transform, f"passes.{stage}[{index}]") for index, transform in enumerate(user_passes)),
    ]


def named(name: str, transform: ModulePass) -> ModulePass:
    """Return a pass under another name."""

    def run(module: IRModule) -> IRModule:
        return transform(module)

    run.__name__ = name
    return run


def _keeps_quantised(backends: Iterable[BackendHandle]) -> bool:
    return any(handle.info().quantised for handle in backends)


def _plugin_pass(compilation: Compilation, stage: Stage, handle: BackendHandle) -> ModulePass:
    hook = HOOKS[stage]

    def run(module: IRModule) -> IRModule:
        with keep_frozen(module, [handle], hook):
            return handle.rewrite(hook, module, handle.context(module, compilation.options(handle)))

    return named(f"{hook.removeprefix('byoc_')}_{handle.name}", run)


@dataclass(frozen=True)
class _UserPass(Pass):
    """A pass of the user, with a checked result; errors name the user's pass.

    Attributes:
        transform: the pass.
        field_path: the pass's place in the user's request.
    """

    verifies_result: ClassVar[bool] = True

    transform: ModulePass
    field_path: str

    @property
    def __name__(self) -> str:
        return pass_name(self.transform)

    def __call__(self, module: IRModule) -> IRModule:
        """Return the pass's result.

        Raises:
            PassError: the pass raised, changed its input, or did not return a valid module.
            ByocError: raised by the pass itself.
        """
        where = f"pass `{self.__name__}` ({self.field_path})"
        snapshot = Snapshot(module)
        try:
            result: object = self.transform(module)
        except (ByocError, MemoryError):
            raise
        except Exception as error:
            raise PassError(where, f"raised {type(error).__name__}: {error}") from error
        if not snapshot.is_current():
            raise PassError(where, "changed a module in place", hint="IR is frozen: a pass must return new objects.")
        if not isinstance(result, IRModule):
            raise PassError(where, "did not return a module", got=type_name(result), expected="IRModule")
        if result is not module:
            try:
                verify(result)
            except VerifyError as error:
                raise PassError(where, f"returned an invalid module: {error}") from error
        return result
