"""Decisions of the core by the name of an op: few places, each with a reason. All other code asks the op."""

from __future__ import annotations

from pathlib import Path

from docs.op_name_uses import op_name_lines

SOURCE = Path(__file__).parents[2] / "src" / "byoc_core"

ALLOWED = {
    "authoring/graph.py": (1, "a graph document has the sizes of a reshape, not the -1 of its attribute"),
    "ir/printer.py": (1, "Python keywords that are names of ops are spelled otherwise"),
    "transform/arithmetic_rules.py": (2, "one rule covers two ops, and the two differ in one condition"),
    "transform/fold_batch_norm.py": (3, "weights of convolutions, dense and matmul have their channels elsewhere"),
    "transform/fold_constants.py": (1, "a cast between floats is the one op that grows constants for nothing"),
    "transform/recognition/attention.py": (5, "one pattern has alternatives, and the match says which is there"),
    "transform/recognition/normalisation.py": (1, "one pattern has alternatives, and the match says which is there"),
}
"""The files, with the number of places and the reason."""


def test_ops_are_asked_and_their_names_are_not_compared() -> None:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        count = len(op_name_lines(path.read_text("utf-8")))
        if count:
            found[path.relative_to(SOURCE).as_posix()] = count
    assert found == {name: count for name, (count, _) in ALLOWED.items()}
    assert sum(found.values()) < 15
