"""The outcomes of exported models: a line each, and a page of the documentation."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from benchmarks.zoo.export_check import CheckedExport
from benchmarks.zoo.exports.export import Export

__all__ = ["Line", "write_ledger"]

_VERSIONS = ("torch", "torchvision", "transformers", "onnxscript", "scikit-learn", "skl2onnx", "onnxruntime", "onnx")

_INTRODUCTION = """\
# Models as users export them

This page is for users with the question whether a model runs. Afterwards you know which kinds of models are exported,
compiled and compared with ONNX Runtime, and the share of work taken by each choice of backends. The models are small,
with random weights; the architectures and the exporters are those of users. `python -m benchmarks.zoo.check_exports
--ledger docs` makes the models with the packages of the dependency group `exports`, and writes this page: a line for
each export of the last run. `--list` prints the names of all exports.

Each model is built once, saved, loaded, and run at several sizes of its dynamic dimensions. The errors are the largest
of all outputs and sizes, against float64, over the largest magnitude of the output. Outputs other than floats are
equal.
"""


@dataclass(frozen=True)
class Line:
    """The outcome of an export on a choice of backends: what was checked, or the text of an error.

    Attributes:
        name: the export.
        backends: the names of the backends, joined by commas; empty for the host alone.
        seconds: the time of building and running.
        outcome: what was checked, or the text of an error.
    """

    name: str
    backends: str
    seconds: float
    outcome: CheckedExport | str

    @property
    def is_right(self) -> bool:
        """Whether the model ran, and all results are right."""
        return not isinstance(self.outcome, str) and not self.outcome.wrong

    def __str__(self) -> str:
        start = f"{self.name:34} {self.backends or 'host':16}"
        if isinstance(self.outcome, str):
            return f"{start} FAILED: {self.outcome}"
        outcome = self.outcome
        text = (
            f"{start} {outcome.ops:5} ops, {outcome.delegated} delegated, {outcome.offloaded_share:4.0%} offloaded, "
            f"error {outcome.error:.1e} (ONNX Runtime {outcome.peer_error:.1e}), {self.seconds:.1f} s"
        )
        return "\n".join([text, *(f"    WRONG: {line}" for line in outcome.wrong)])


def write_ledger(folder: Path, exports: Mapping[str, Export], lines: Sequence[Line]) -> None:
    """Write ``exported-models.md`` into a folder.

    Args:
        folder: the folder.
        exports: all exports by name.
        lines: the outcomes, those of an export together, in the same order of backends.
    """
    choices = list(dict.fromkeys(line.backends for line in lines))
    titles = [choice.replace(",", " and ") or "host" for choice in choices]
    head = ["export", "sizes", "ops", "delegated", *(f"offloaded by {title}" for title in titles if title != "host")]
    head += ["error", "error of ONNX Runtime"]
    rows = [head, ["---"] * len(head)]
    for name, group in groupby(lines, lambda line: line.name):
        rows.append(_row(name, exports[name], {line.backends: line for line in group}, choices))
    text = [_INTRODUCTION, *(f"| {' | '.join(row)} |" for row in rows), "", "## Architectures", ""]
    named = {line.name.split("/")[0]: exports[line.name].doc for line in lines}
    text += [f"- `{name}`: {doc}." for name, doc in named.items()]
    reasons = [
        f"- `{line.name}`, `{output}`: {reason}."
        for line in lines
        if line.backends == choices[0]
        for output, reason in exports[line.name].reasons.items()
    ]
    if reasons:
        text += ["", "## Outputs that differ from ONNX Runtime's", "", *reasons]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _VERSIONS)
    text += ["", f"Made with {versions}.", ""]
    (folder / "exported-models.md").write_text("\n".join(text), "utf-8")


def _row(name: str, export: Export, by_choice: Mapping[str, Line], choices: Sequence[str]) -> list[str]:
    checked = {
        choice: line.outcome
        for choice, line in by_choice.items()
        if not isinstance(line.outcome, str) and line.is_right
    }
    if not checked:
        return [f"`{name}`", str(len(export.sizes)), *["wrong"] * (2 + len(choices) - ("" in choices) + 2)]
    first = next(iter(checked.values()))
    shares = [
        f"{checked[choice].offloaded_share:.0%}" if choice in checked else "wrong" for choice in choices if choice
    ]
    errors = [max(getattr(found, field) for found in checked.values()) for field in ("error", "peer_error")]
    counts = [str(len(export.sizes)), str(first.ops), str(first.delegated)]
    return [f"`{name}`", *counts, *shares, *(f"{error:.1e}" for error in errors)]
