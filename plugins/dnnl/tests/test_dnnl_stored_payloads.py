"""Malformed stored plans: Python refuses each with an error of its own, and the C runtime never crashes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from byoc_core.errors import ArtifactError
from byoc_dnnl.payload import Payload, join_payload, split_payload
from byoc_dnnl.runtime import byoc_check_payload
from hypothesis import settings

from plugins.dnnl.tests.stored_mutants import changed_text, write_corpus
from plugins.dnnl.tests.test_dnnl_stored_plans import CASES, build, plans_of

ROOT = Path(__file__).parents[3]

HEAD = "byoc-dnnl-plans 1\nlibrary 3 2 0 231\nregion f 1 1\nplan 1 0 0\ntensor 2 32 1 4\ntensor 2 32 1 4\n"
MALFORMED = {
    "": "has stored plans of another length",
    "byoc-dnnl-plans 2\n": "line 1: is no beginning",
    "byoc-dnnl-plans 1\n": "line 2: names no library",
    "byoc-dnnl-plans 1\nlibrary 3 2 0\n": "line 2: a word is missing",
    "byoc-dnnl-plans 1\nlibrary 3 2 0 231\nplan 1 0 0\n": "line 3: is neither a region nor a plan",
    HEAD: "line 6: is the last line, but the plan does not end",
    HEAD + "end": "do not end with a line",
    HEAD + "end 1\n": "line 7: has further words",
    HEAD + "strided 3 1 4\nend\n": "line 7: a word is missing",
    HEAD + "strided 3 1 4 x\nend\n": "line 7: a word is missing or malformed",
    HEAD + "permuted 0 1 0\nend\n": "line 7: a number is out of range",
    HEAD + "any 3 1 4\nlocation argument 2 0\nend\n": "line 8: a number is out of range",
    HEAD + "any 3 1 4\nlocation elsewhere 0 0\nend\n": "line 8: has an unknown kind of memory",
    HEAD + "constant 12\nend\n": "line 7: a word is missing or malformed",
    HEAD + "execute 0 1 1 0 0\nend\n": "line 7: a number is out of range",
    HEAD + "sing 3\nend\n": "line 7: has an unknown word",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_plans_are_refused(text: str) -> None:
    payload = f"plans={len(text)}\n{text}".encode() + b"{}"
    with pytest.raises(ArtifactError, match=MALFORMED[text]):
        byoc_check_payload(payload)


@pytest.mark.parametrize("line", ["plans=", "plans=x", "plans=-1", "plans=9999", "plans=" + "9" * 30])
def test_malformed_lengths_are_refused(line: str) -> None:
    with pytest.raises(ArtifactError, match="has stored plans of another length"):
        split_payload(f"{line}\n".encode() + b"{}")


def test_parts_of_a_payload_are_read_as_written() -> None:
    text = (HEAD + "end\n").encode()
    payload = Payload(b"{}", "bfloat16", {"f": {"y": "nhwc"}}, text)
    assert split_payload(join_payload(payload)) == payload


def test_changed_plans_are_read_or_refused() -> None:
    texts = [plans_of(build(make()[0].ir)) for make in CASES.values()]
    outcomes: Counter[str] = Counter()
    for index in range(10 * settings().max_examples):
        rng = random.Random(f"text {index}")
        text = changed_text(rng.choice(texts), rng).encode("ascii")
        try:
            split_payload(b"plans=%d\n%s{}" % (len(text), text))
            outcomes["read"] += 1
        except ArtifactError:
            outcomes["refused"] += 1
    assert set(outcomes) == {"read", "refused"}


def test_mutants_are_refused_or_run_by_the_c_runtime(c_runtime_file: Path, native_half: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    outcomes: Counter[str] = Counter()
    count = 8 * settings().max_examples
    while (first := outcomes.total()) < count:
        child = [sys.executable, "-m", "plugins.dnnl.tests.stored_mutants", c_runtime_file, native_half, tmp_path]
        command = [*map(str, child), str(first), str(count)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        lines = [line.split() for line in done.stdout.splitlines()]
        outcomes.update(line[2] for line in lines if line[0] == "end")
        if done.returncode == -signal.SIGPROF:
            outcomes["endless"] += 1
            continue
        assert done.returncode == 0, f"{lines[-1:]}: status {done.returncode}\n{done.stderr[-4000:]}"
    assert set(outcomes) - {"endless", "unfit"} == {"refused", "ran"}
    assert outcomes["endless"] <= outcomes.total() // 20
