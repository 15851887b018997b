"""Reproducers of failing regions: folders with a script showing the failure without the model."""

from __future__ import annotations

import ast
import pprint
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from byoc_core.debugging.compiling import extract_region
from byoc_core.debugging.narrowing import op_label
from byoc_core.debugging.report import DebugReport, FailingCase
from byoc_core.errors import OptionsError
from byoc_core.file_replacement import replace_file
from byoc_core.runtime.array_files import save_arrays
from byoc_core.version import __version__

__all__ = ["save_reproducers"]

_MARK = "# A reproducer written by byoc debug."
_FILES = ("repro.py", "region.py", "inputs.npz", "constants.npz")

_SCRIPT = """{mark}
#
# {what}
# Ops: {ops}.
{found}
# Written with {versions}.
#
# `python repro.py` compiles region.py for `{backend}`, runs the region on inputs.npz and compares the results with the
# reference kernels. The exit status is 1 if the region diverges, else 0.
# Required: byoc-core and the package of the backend.

from pathlib import Path

import byoc_core
from byoc_core.debugging import Tolerance, check_region, load_arrays

FOLDER = Path(__file__).resolve().parent
OPTIONS = {options}
TOLERANCE = {tolerance}


def main() -> int:
    module = byoc_core.parse(
        (FOLDER / "region.py").read_text(encoding="utf-8"),
        constants=load_arrays(FOLDER / "constants.npz"),
        ops=byoc_core.ops.default_ops().extended(byoc_core.backends.ops([{backend!r}])),
    )
    inputs = load_arrays(FOLDER / "inputs.npz")
    check = check_region(
        module,
        {name!r},
        list(inputs.values()),
        options=OPTIONS,
        tolerance=TOLERANCE,
        isolate={isolate},
        deadline={deadline!r},
    )
    print(check)
    return 0 if check.is_right else 1


if __name__ == "__main__":
    raise SystemExit(main())
"""


def save_reproducers(report: DebugReport, folder: str | Path) -> tuple[Path, ...]:
    """Write a folder for each diverging region.

    Each folder has ``repro.py``, requiring only byoc-core and the backend's package; ``region.py``, the region as
    script; and the inputs and constants as ``.npz`` files. Equal reports give equal bytes.

    Args:
        report: the report with the diverging regions.
        folder: parent of the folders; created if absent.

    Returns:
        The folders, in module order.

    Raises:
        OptionsError: a folder holds something other than an earlier reproducer, or a backend's options are no plain
            values; nothing is written then.
        OSError: a file cannot be written.
    """
    root = Path(folder)
    case_folders = [(case, root / _safe_name(index, case.name)) for index, case in enumerate(report.cases)]
    scripts = [_script(case, report) for case, _ in case_folders]
    for _, case_folder in case_folders:
        _check_own(case_folder)
    for (case, case_folder), script in zip(case_folders, scripts, strict=True):
        case_folder.mkdir(parents=True, exist_ok=True)
        region = extract_region(case.module, case.name)
        names = [param.name for param in case.module[case.name].params]
        inputs = {f"{i}_{_word(name)}": array for i, (name, array) in enumerate(zip(names, case.inputs, strict=True))}
        save_arrays(case_folder / "inputs.npz", inputs)
        save_arrays(case_folder / "constants.npz", dict(region.constants))
        for name, text in (("region.py", str(region)), ("repro.py", script)):
            with replace_file(case_folder / name) as file:
                file.write(text.encode("utf-8"))
    return tuple(case_folder for _, case_folder in case_folders)


def _check_own(folder: Path) -> None:
    if not folder.exists() and not folder.is_symlink():
        return
    found = sorted(item.name for item in folder.iterdir()) if folder.is_dir() else None
    script = folder / "repro.py"
    is_own = found is not None and (
        not found
        or (
            set(found) <= set(_FILES)
            and script.is_file()
            and script.read_text(encoding="utf-8", errors="replace").startswith(_MARK)
        )
    )
    if not is_own:
        raise OptionsError(f"folder `{folder}`", "exists and is not a reproducer", hint="Name another folder.")


def _script(case: FailingCase, report: DebugReport) -> str:
    verdict = case.verdict
    ops = ", ".join(op_label(binding) for binding in case.module[case.name].bindings)
    found = [line for finding in verdict.findings for line in f"{finding.code}: {finding.text}".splitlines()]
    guilt = () if case.guilt is None else str(case.guilt).splitlines()
    options = {verdict.backend: report.options[verdict.backend]} if verdict.backend in report.options else {}
    return _SCRIPT.format(
        mark=_MARK,
        what=f"Region `{case.name}` of backend `{verdict.backend}` diverges ({verdict.verdict}).",
        ops=ops,
        found="\n".join(f"# {line}".rstrip() for line in (*found, *guilt)),
        versions=_versions(report.origins.get(verdict.backend)),
        backend=verdict.backend,
        name=case.name,
        options=_literal(options),
        tolerance=repr(report.tolerance),
        isolate=report.isolated,
        deadline=report.deadline,
    )


def _versions(origin: str | None) -> str:
    """Return the versions to note; an object of the session's own process has no origin."""
    return ", ".join(filter(None, [f"byoc-core {__version__}", origin, f"numpy {np.__version__}"]))


def _literal(options: Mapping[str, Mapping[str, object]]) -> str:
    text = pprint.pformat({name: dict(backend_options) for name, backend_options in options.items()}, width=100)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise OptionsError("options", "are not plain values, so cannot be written into a script", got=text) from error
    return text


def _safe_name(index: int, name: str) -> str:
    return f"{index:02d}_{_word(name)}"


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)[:64]
