"""``byoc demo``: a small model through the installed backends."""

from __future__ import annotations

from byoc_core.cli.selection import BackendOption, StrictOption

__all__ = ["run_demo"]

# Three sums of float32 products in a row, none longer than 144 terms; relative to the largest probability.
_TOLERANCE = 3 * 144 * 2.0**-24


def run_demo(backend: BackendOption = None, strict: StrictOption = False) -> None:
    """Takes a small network all the way, and compares with the host alone."""
    import numpy as np

    from byoc_core.cli.console import open_console, show_stages
    from byoc_core.cli.demo_model import make_demo_image, make_demo_model
    from byoc_core.cli.outputs import new_summary
    from byoc_core.cli.selection import choose_backends
    from byoc_core.driver import build
    from byoc_core.errors import ExecutionError
    from byoc_core.vm import VirtualMachine

    chosen = choose_backends(backend)
    module = make_demo_model()
    with show_stages("demo") as show:
        executable = build(module, chosen, strict=strict, progress=show)
        reference = build(module, [])
    image = make_demo_image()
    result = np.asarray(VirtualMachine(executable).run("main", {"image": image}))
    expected = np.asarray(VirtualMachine(reference).run("main", {"image": image}))

    console = open_console()
    console.print(f"backends: {', '.join(chosen) or 'none installed that can compile here'}; then the host\n")
    console.print(f"{executable.report()}\n", soft_wrap=True)
    console.print(new_summary({"probabilities": result}))
    difference = float(np.abs(result - expected).max())
    if not difference <= _TOLERANCE * float(np.abs(expected).max()):
        raise ExecutionError(
            "demo", "the backends' result is not the host's", got=f"a difference of {difference:.3g}", expected="none"
        )
    console.print(f"largest difference from the host alone: {difference:.3g}")
