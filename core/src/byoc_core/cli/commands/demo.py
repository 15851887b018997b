"""``byoc demo``: a small model through the installed backends."""

from __future__ import annotations

from byoc_core.cli.request import BackendOption, StrictOption

__all__ = ["run_demo"]

# Three sums of float32 products in a row, none longer than 144 terms; relative to the largest probability.
_TOLERANCE = 3 * 144 * 2.0**-24


def run_demo(backend: BackendOption = None, strict: StrictOption = False) -> None:
    """Compile and run a small network by each backend alone and by all together, and compare with the host alone.

    Prints the report and the outputs of the last run.
    """
    import numpy as np

    from byoc_core.cli.console import new_table, open_console, show_stages
    from byoc_core.cli.demo_model import make_demo_image, make_demo_model
    from byoc_core.cli.outputs import new_summary
    from byoc_core.cli.request import choose_backends
    from byoc_core.driver import build
    from byoc_core.errors import ExecutionError
    from byoc_core.reporting.text import percent
    from byoc_core.vm import VirtualMachine

    backends = choose_backends(backend)
    selections = [[name] for name in backends] if len(backends) > 1 else []
    selections.append(backends)
    module = make_demo_model()
    inputs = {"image": make_demo_image()}
    console = open_console()
    table = new_table("Selections of backends", "backends", "offloaded", "largest difference", right=("offloaded",))
    with show_stages("demo") as show:
        expected = np.asarray(VirtualMachine(build(module, [])).run("main", inputs))
        for selection in selections:
            executable = build(module, selection, strict=strict, progress=show)
            result = np.asarray(VirtualMachine(executable).run("main", inputs))
            difference = float(np.abs(result - expected).max())
            if not difference <= _TOLERANCE * float(np.abs(expected).max()):
                raise ExecutionError(
                    f"demo by {', '.join(selection) or 'the host'}",
                    "the result differs from the result of the host alone",
                    got=f"a difference of {difference:.3g}",
                    expected="none",
                )
            share = percent(executable.report_data["offloaded_share"])
            table.add_row(", ".join(selection) or "none", share, f"{difference:.3g}")

    console.print(f"backends: {', '.join(backends) or 'none able to compile here'}; then the host\n")
    console.print(f"{executable.report()}\n", soft_wrap=True)
    console.print(new_summary({"probabilities": result}))
    console.print(table)
