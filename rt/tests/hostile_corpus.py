"""The artifacts to mutate: small models by the backends that the C runtime runs alone, and programs written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import byoc_core
from byoc_core.artifact import Executable

from core.tests.artifact.fuzzing.corpus import seeds
from rt.tests.test_machine_programs import counting, joined, nested
from rt.tests.test_states import DECODER
from rt.tests.written_programs import executable_of

__all__ = ["CONTROL_FLOW", "write_corpus"]

CONTROL_FLOW = """
@R.ir_module
class Module:
    @R.function
    def main(
        flag: R.Tensor((), "bool"), trips: R.Tensor((), "int64"), table: R.Tensor(("n", 3), "float32")
    ):
        @R.region
        def then_region(p0: R.Tensor(("n", 3), "float32")) -> R.Tensor(("b", 3), "float32"):
            lv0 = R.as_dynamic(p0, axes=(0,), out_types=[R.Tensor(("b", 3), "float32")])
            return lv0

        @R.region
        def else_region(p0: R.Tensor(("n", 3), "float32")) -> R.Tensor(("b", 3), "float32"):
            lv0 = R.sum(p0, axis=(1,))
            lv1 = R.less(R.const(0.0, "float32"), lv0)
            lv2 = R.compress(p0, lv1, axis=0, out_types=[R.Tensor(("b", 3), "float32")])
            return lv2

        lv0 = R.if_(flag, table, regions=[then_region, else_region])

        @R.region
        def body(
            p0: R.Tensor((), "int64"), p1: R.Tensor(("g", 3), "float32"), p2: R.Tensor(("n", 3), "float32")
        ) -> (R.Tensor((), "bool"), R.Tensor(("g+n", 3), "float32"), R.Tensor(("n", 3), "float32")):
            lv0 = R.concat(p1, p2)
            return R.const(True, "bool"), lv0, p2

        lv1, lv2 = R.loop(trips, R.const(True, "bool"), table, table, regions=[body])
        return lv0, lv1, lv2
"""


def _executables() -> Iterator[tuple[str, Executable]]:
    yield "joined", joined()
    yield "counting", counting()
    yield "nested", executable_of(*nested())
    yield "states", byoc_core.build(byoc_core.parse(DECODER), backends=[])
    yield "control-flow", byoc_core.build(byoc_core.parse(CONTROL_FLOW), backends=[])


def write_corpus(folder: Path) -> None:
    """Write the artifacts into a folder, in the form of :class:`core.tests.artifact.fuzzing.folder.Folder`."""
    for seed in seeds():
        if seed.name.endswith((".host", ".ccompiler")):
            (folder / f"{seed.name}.{'native' if seed.is_native else 'data'}.seed").write_bytes(seed.content)
    for name, executable in _executables():
        is_native = any(module.is_native for module in executable.modules)
        (folder / f"{name}.written.{'native' if is_native else 'data'}.seed").write_bytes(executable.to_bytes())
