"""Large networks as exported C under sanitizers and valgrind: equal to the virtual machine, no error, no leak.

    python -m plugins.ccompiler.tests.sanitized_models
    python -m plugins.ccompiler.tests.sanitized_models --models light_resnet50 --tools gcc valgrind

The networks are all light models of the onnx package (ResNet-50 and DenseNet-121 among these) and a transformer encoder
of four layers with symbolic sizes up to a maximum. A network may have no part outside of C. The tools ``gcc`` and
``clang`` compile with all warnings as errors, AddressSanitizer and UBSan; ``portable-gcc`` and ``portable-clang`` the
same for C without vector types; ``valgrind`` runs C for any processor of the architecture. With ``gcc`` the C holds the
constants, with some other tools the program maps a file. The workspace is
filled with bytes of 0xFF (NaN) before the run, so reads of undefined memory show in the outputs.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import byoc_core
import numpy.typing as npt
import onnx
from byoc_core.errors import ByocError
from byoc_core.runtime.csource import CSourceModule

from benchmarks.zoo import bert
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.light import draw_inputs, list_light_models, load_light_model
from plugins.ccompiler.tests.sanitized_c import SANITIZERS, WARNINGS, fill_workspace

__all__ = ["TOOLS", "Outcome", "list_networks", "try_network"]

NDArray = npt.NDArray[Any]
ENCODER = "encoder"
ENCODER_CONFIG = dataclasses.replace(bert.SIZES["tiny"], num_layers=4)
ENCODER_LARGEST = {"batch": 2, "sequence": 24}
ENCODER_SIZES = {"batch": 2, "sequence": 19}


@dataclass(frozen=True)
class Tool:
    """A way to compile and run an export.

    Attributes:
        program: the C compiler, or valgrind.
        options: the options of ccompiler.
        constants: the form of the constants.
        flags: the flags of the C compiler.
    """

    program: str
    options: Mapping[str, object]
    constants: str
    flags: str


TOOLS = {
    "gcc": Tool("gcc", {}, "auto", f"{WARNINGS} {SANITIZERS}"),
    "clang": Tool("clang", {}, "file", f"{WARNINGS} {SANITIZERS}"),
    "portable-gcc": Tool("gcc", {"portable": True}, "object", f"{WARNINGS} {SANITIZERS}"),
    "portable-clang": Tool("clang", {"portable": True}, "file", f"{WARNINGS} {SANITIZERS}"),
    "valgrind": Tool("valgrind", {"march": "generic"}, "file", "-std=c11 -O2 -g -ffp-contract=off"),
}
"""The tools by name; valgrind lacks the newest instruction sets."""
VALGRIND = ("valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=all")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a network under a tool: the largest errors of the outputs, or the fault."""

    network: str
    tool: str
    num_ops: int
    seconds: float
    report: str
    fault: str = ""


def list_networks() -> tuple[str, ...]:
    """Return the names of all networks."""
    return (*list_light_models(), ENCODER)


def load_network(name: str) -> tuple[onnx.ModelProto, dict[str, int] | None, Mapping[str, NDArray]]:
    """Return a network, the largest sizes of the export, and inputs."""
    if name == ENCODER:
        model = bert.build_bert(ENCODER_CONFIG, STYLES["exported17"])
        return model, ENCODER_LARGEST, bert.draw_bert_inputs(ENCODER_CONFIG, ENCODER_SIZES, 0)
    model = load_light_model(name)
    return model, None, draw_inputs(model, 0)


def try_network(name: str, tools: Sequence[str], folder: Path) -> Iterator[Outcome]:
    """Export a network for each tool, and yield the outcome of the test program."""
    model, largest, inputs = load_network(name)
    for tool in tools:
        start = time.monotonic()
        place = folder / tool
        try:
            executable = byoc_core.build(
                byoc_core.from_onnx(model), ["ccompiler"], options={"ccompiler": TOOLS[tool].options}, strict=True
            )
            executable.require_offload(1.0)
            remainder = [module.type_key for module in executable.modules if not isinstance(module, CSourceModule)]
            executable.export_c(place, max_sizes=largest, test_inputs=inputs, constants=TOOLS[tool].constants)
            fault = f"modules not in C: {', '.join(remainder)}" if remainder else ""
            num_outputs = len(executable.signature("main").outputs)
        except ByocError as error:
            yield Outcome(name, tool, 0, time.monotonic() - start, "", str(error))
            continue
        report, problem = _run(place, TOOLS[tool], num_outputs)
        yield Outcome(name, tool, len(model.graph.node), time.monotonic() - start, report, fault or problem)
        shutil.rmtree(place)


def _run(folder: Path, tool: Tool, num_outputs: int) -> tuple[str, str]:
    """Build and run the test program of an export; return the lines on the outputs, and the fault."""
    fill_workspace(folder / "main.c")
    march = " ".join(re.findall(r"-march=\S+", (folder / "Makefile").read_text()))
    compiler = "gcc" if tool.program == "valgrind" else tool.program
    make = ["make", "-s", "model_test", f"CC={compiler}", f"CFLAGS={tool.flags} {march}"]
    built = subprocess.run(make, cwd=folder, capture_output=True, text=True, check=False)
    if built.returncode:
        return "", built.stderr[-2000:]
    command = [*(VALGRIND if tool.program == "valgrind" else ()), "./model_test"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    is_right = ran.returncode == 0 and ran.stdout.count(": right") == num_outputs > 0 and not ran.stderr
    lines = "; ".join(line.strip() for line in ran.stdout.splitlines())
    return lines, "" if is_right else f"status {ran.returncode}\n{ran.stdout[-1000:]}{ran.stderr[-4000:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=list_networks(), default=list_networks(), help="the networks")
    parser.add_argument("--tools", nargs="*", choices=tuple(TOOLS), default=tuple(TOOLS), help="the tools")
    arguments = parser.parse_args()
    present = [tool for tool in arguments.tools if shutil.which(TOOLS[tool].program) is not None]
    for tool in arguments.tools:
        if tool not in present:
            print(f"left out: {tool}, because `{TOOLS[tool].program}` is not on PATH")
    faults = 0
    for name in arguments.models:
        with tempfile.TemporaryDirectory(prefix="byoc-sanitized-") as folder:
            for outcome in try_network(name, present, Path(folder)):
                faults += bool(outcome.fault)
                text = f"FAULT {outcome.fault}" if outcome.fault else outcome.report
                print(f"{name}, {outcome.tool}, {outcome.num_ops} ops, {outcome.seconds:.0f} s: {text}", flush=True)
    return int(bool(faults) or not present)


if __name__ == "__main__":
    sys.exit(main())
