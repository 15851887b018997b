"""The stable modules of byoc_core, in one list; docs/api-stability.md has its table between two marks."""

from __future__ import annotations

__all__ = ["MARKS", "STABLE_MODULES", "with_stable_modules"]

STABLE_MODULES = {
    "byoc_core": "compile, run, save and load models",
    "byoc_core.artifact": "artifacts: load, inspect, verify, trust",
    "byoc_core.artifact.archive": "the container of an artifact, for programs that take one apart",
    "byoc_core.authoring": "the kits for authors of backends, in brief",
    "byoc_core.authoring.c": "C as data: statements, passes, schedules, printer",
    "byoc_core.authoring.csource": "the kit for backends that print C",
    "byoc_core.authoring.graph": "the kit for backends that hand graphs to a library",
    "byoc_core.authoring.layouts": "layouts of values, and how view ops change them",
    "byoc_core.backend": "the registry of backends",
    "byoc_core.backend.hooks": "the hooks of a backend, and the types that they exchange",
    "byoc_core.cli.console": "consoles and tables, for commands that other distributions bring",
    "byoc_core.debugging": "regions against the reference kernels",
    "byoc_core.debugging.rounding": "how much each op may err",
    "byoc_core.dims": "symbolic sizes",
    "byoc_core.dtypes": "dtypes: names, sizes, limits, numpy's form",
    "byoc_core.errors": "the tree of errors",
    "byoc_core.file_replacement": "files that appear whole or not at all",
    "byoc_core.ir": "modules, functions, bindings, types; parser, printer, verifier",
    "byoc_core.isolation": "work in a process of its own, which may crash or hang",
    "byoc_core.lint": "the lint of backends",
    "byoc_core.native.abi": "the C ABI",
    "byoc_core.native.toolchain": "C compilers and the options of a build",
    "byoc_core.ops": "the ops, the builder of functions, the parts of an op of your own",
    "byoc_core.ops.cases": "canonical cases of the ops",
    "byoc_core.opset": "the facts that ops state, for the run side too",
    "byoc_core.partitioning": "partition, policies, the data of reports",
    "byoc_core.pattern": "the language of patterns",
    "byoc_core.plugin": "plugins that are installed",
    "byoc_core.printable": "text of strangers that a terminal shows and does not obey",
    "byoc_core.runtime": "the run side, in brief; the registry of runtimes",
    "byoc_core.runtime.extension": "whether there is the C extension",
    "byoc_core.runtime.graph": "the run half of the graph kit",
    "byoc_core.runtime.graph.document": "the typed graph document",
    "byoc_core.runtime.hooks": "the hooks of a runtime, and the types that they exchange",
    "byoc_core.runtime.module": "modules of compiled functions",
    "byoc_core.runtime.plan_storage": "places for buffers that are not all needed at once",
    "byoc_core.runtime.symbolic_storage": "the same for buffers of symbolic sizes",
    "byoc_core.runtime.threads": "threads of the process and of a call; locks that survive a fork",
    "byoc_core.runtime.vector_functions": "functions of many float32 at once, by their address",
    "byoc_core.script": "models as Python functions",
    "byoc_core.transform": "passes, the rewriter, the reference interpreter",
    "byoc_core.transform.byte_weights": "weights of integer products as signed bytes",
}
"""What programs and plugins may rely on, module by module: the names in the ``__all__`` of each."""

MARKS = ("<!-- stable modules: made by `python -m docs.generate` -->", "<!-- end of stable modules -->")


def with_stable_modules(page: str) -> str:
    """Return the page with the table of the stable modules between its marks.

    Raises:
        ValueError: the marks are not there.
    """
    begin, end = MARKS
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page does not have {begin} and {end} once each")
    rows = [f"| `{name}` | {meaning} |" for name, meaning in STABLE_MODULES.items()]
    table = "\n".join(["| module | what it is for |", "|---|---|", *rows])
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"
