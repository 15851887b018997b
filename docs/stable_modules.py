"""The list of the stable modules of byoc_core; docs/api-stability.md has the table between two marks."""

from __future__ import annotations

__all__ = ["MARKS", "STABLE_MODULES", "with_stable_modules"]

STABLE_MODULES = {
    "byoc_core": "compile, run, save and load models",
    "byoc_core.artifact": "artifacts: load, inspect, verify, trust",
    "byoc_core.artifact.archive": "the container of an artifact, for programs reading the parts of an artifact",
    "byoc_core.authoring": "the kits for authors of backends: main names",
    "byoc_core.authoring.c": "C as data: statements, passes, schedules, printer",
    "byoc_core.authoring.cost_table": "estimates of costs from a table of measurements",
    "byoc_core.authoring.csource": "the kit for backends printing C",
    "byoc_core.authoring.graph": "the kit for backends passing graphs to a library",
    "byoc_core.authoring.layouts": "layouts of values, and the effect of view ops on layouts",
    "byoc_core.backend": "the registry of backends",
    "byoc_core.backend.hooks": "the hooks of a backend, with the argument and result types",
    "byoc_core.backend.lowering": "the builder of lowered functions: buffers, calls, loops",
    "byoc_core.benchmarking": "times of a model beside other inference engines",
    "byoc_core.cli.console": "consoles and tables, for commands of other distributions",
    "byoc_core.debugging": "comparison of regions with the reference kernels",
    "byoc_core.debugging.rounding": "the allowed error of each op",
    "byoc_core.digest": "the digests citing constants in modules and artifacts",
    "byoc_core.dims": "symbolic sizes",
    "byoc_core.dtypes": "dtypes: names, sizes, limits, numpy's form",
    "byoc_core.errors": "the error classes",
    "byoc_core.file_replacement": "atomic replacement of files",
    "byoc_core.frontend.hooks": "the hook of importers of ONNX operators, with the result type",
    "byoc_core.frontend.onnx": "the ONNX front end, and the node as seen by importers",
    "byoc_core.ir": "modules, functions, bindings, types; parser, printer, verifier",
    "byoc_core.isolation": "work in a separate process, safe against crashes and hangs",
    "byoc_core.lint": "the lint of backends",
    "byoc_core.native.abi": "the C ABI",
    "byoc_core.native.toolchain": "C compilers and the options of a build",
    "byoc_core.ops": "the ops, the builder of functions, the parts of custom ops",
    "byoc_core.ops.cases": "canonical cases of the ops",
    "byoc_core.opset": "the facts stated by ops, for the run side too",
    "byoc_core.partitioning": "partition, policies, the data of reports",
    "byoc_core.pattern": "the pattern language",
    "byoc_core.plugin": "installed plugins",
    "byoc_core.printable": "printable form of untrusted text, for terminals",
    "byoc_core.profiling": "times of regions, kernels and ops",
    "byoc_core.onnx_backend": "byoc by the interface of `onnx.backend.base`",
    "byoc_core.runtime": "the run side: main names; the registry of runtimes",
    "byoc_core.runtime.device_arrays": "arrays in the memory of devices: inputs, results, DLPack",
    "byoc_core.runtime.devices": "devices: memory, streams, copies",
    "byoc_core.runtime.extension": "presence of the C extension",
    "byoc_core.runtime.graph": "the run half of the graph kit",
    "byoc_core.runtime.graph.document": "the typed graph document",
    "byoc_core.runtime.hooks": "the hooks of a runtime, with the argument and result types",
    "byoc_core.runtime.memory": "descriptions of memory: domains of devices, pools of a domain",
    "byoc_core.runtime.module": "modules of compiled functions",
    "byoc_core.runtime.parts": "parts of calls, for profiles",
    "byoc_core.runtime.plan_storage": "offsets of buffers with different live ranges",
    "byoc_core.runtime.pools": "places of buffers in several memories with limits",
    "byoc_core.runtime.protected_device": "a device for tests, with memory out of the host's reach",
    "byoc_core.runtime.staged": "functions of a device, called with arrays of the host",
    "byoc_core.runtime.maps": "maps and sequences of maps as the arrays of compiled models",
    "byoc_core.runtime.sequences": "sequences of arrays as the arrays passed to compiled models",
    "byoc_core.runtime.symbolic_storage": "offsets of buffers of symbolic sizes",
    "byoc_core.runtime.threads": "threads of the process and of a call; locks usable after a fork",
    "byoc_core.runtime.vector_functions": "vectorised float32 functions of the C extension, by address",
    "byoc_core.runtime.value_forms": "strings, sequences and optional values as arrays",
    "byoc_core.script": "models as Python functions",
    "byoc_core.session": "models opened by path and called by name; the cache of compiled models",
    "byoc_core.transform": "passes, the rewriter, the reference interpreter",
    "byoc_core.transform.byte_weights": "weights of integer products as signed bytes",
    "byoc_core.tuning": "measured placements",
    "byoc_core.vm.memory_map": "the buffers of a function in the arena",
    "byoc_core.vm.state": "values kept from call to call",
    "byoc_core.vm.state_summary": "the states of a function, with the bytes copied by a call",
}
"""The modules open to programs and plugins, with their purposes; the stable names of a module are its ``__all__``."""

MARKS = ("<!-- stable modules: made by `python -m docs.generate` -->", "<!-- end of stable modules -->")


def with_stable_modules(page: str) -> str:
    """Return the page with the table of the stable modules between its marks.

    Raises:
        ValueError: the marks are not there.
    """
    begin, end = MARKS
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page must contain {begin} and {end} exactly once")
    rows = [f"| `{name}` | {meaning} |" for name, meaning in STABLE_MODULES.items()]
    table = "\n".join(["| module | purpose |", "|---|---|", *rows])
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"
