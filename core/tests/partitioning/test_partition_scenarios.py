"""The partition scenarios P1 to P32; scenarios with text in and text out are in ``scenarios``, a file for each code."""

from __future__ import annotations

import re
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.ir import Binding
from byoc_core.partitioning import partition
from byoc_core.pattern import CompositePattern, Support, is_op, wildcard

from core.tests.conftest import FakeBackend
from core.tests.partitioning.scenario import Scenario, check_scenario, load_scenarios, parse_scenarios

FOLDER = Path(__file__).parent
SCENARIOS = load_scenarios(FOLDER / "scenarios")
CODES = {f"P{number}" for number in range(1, 33) if number not in (10, 16)}
"""All codes; the list of scenarios has no P10 and no P16. P30 is tested with the plugins, P31 with the lint."""


@pytest.mark.parametrize("case", SCENARIOS, ids=str)
def test_scenario(case: Scenario) -> None:
    check_scenario(case)


def test_every_code_has_a_case() -> None:
    tests = "\n".join(path.read_text("utf-8") for path in FOLDER.parent.glob("plugin/test_*.py"))
    elsewhere = {f"P{number}" for number in re.findall(r"^def test_p(\d+)_", tests, re.MULTILINE)}
    assert {case.code for case in SCENARIOS} | elsewhere == CODES - {"P31"}


def test_a_file_holds_one_code_and_is_named_after_it() -> None:
    for path in (FOLDER / "scenarios").glob("*.txt"):
        (code,) = {case.code for case in parse_scenarios(path.read_text("utf-8"))}
        assert path.name.startswith(f"p{int(code[1:]):02}_")
    assert len(set(map(str, SCENARIOS))) == len(SCENARIOS)


GOOD = """# P3 a region
== backends
aone: nn.relu
== in
def main(x: R.Tensor((4,))):
    a = R.nn.relu(x)
    return a
== out
def aone_main_0(x):
    a = nn.relu(x)
    return a
def main(x):
    a = aone_main_0(x)
    return a
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("a = aone_main_0(x)\n", "a = aone_main_1(x)\n", "+    a = aone_main_0(x)"),
        ("aone: nn.relu", "aone: tanh", "-def aone_main_0(x):"),
        ("    return a\n== out", "    return x\n== out", "+    return x"),
        ("== out\ndef", "== error\ndef", "no error came"),
        ("== out", "== constants\n1\n== out", "-1\n+0"),
    ],
)
def test_a_case_whose_expectation_is_wrong_fails(old: str, new: str, problem: str) -> None:
    (good,) = parse_scenarios(GOOD)
    check_scenario(good)
    assert old in GOOD
    (wrong,) = parse_scenarios(GOOD.replace(old, new, 1))
    with pytest.raises(AssertionError, match=re.escape(problem)):
        check_scenario(wrong)


@pytest.mark.parametrize(
    "wrong", [GOOD.replace("== out", "== outt"), GOOD.partition("== out")[0], GOOD.replace("# P3", "# Q3")]
)
def test_a_case_without_its_parts_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"scenario `# .3 a region`"):
        list(parse_scenarios(wrong))


def test_p7_the_regions_of_one_op_have_equal_structure(fake_backend: type[FakeBackend]) -> None:
    (case,) = (case for case in SCENARIOS if case.code == "P7")
    fakes = [fake_backend("aone", ["add", "nn.relu"]), fake_backend("btwo", ["nn.gelu"])]
    parted = partition(R.parse(case.sections["in"]), fakes)
    left, right = (parted[name].with_attrs(global_symbol="same") for name in ("btwo_main_0", "btwo_main_1"))
    assert left == right


def test_p21_the_machine_runs_a_region_whose_sizes_come_with_another_value(fake_backend: type[FakeBackend]) -> None:
    case = next(
        case for case in SCENARIOS if case.sentence == "a size that no input gives comes with a value that does"
    )
    fakes = [fake_backend("aone", ["reshape"]), fake_backend("btwo", ["tanh"])]
    executable = byoc_core.build(R.parse(case.sections["in"]), fakes)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](x), np.tanh(x.reshape(3, 2)))


def test_a_backend_is_not_asked_inside_composites(fake_backend: type[FakeBackend]) -> None:
    """A second backend must not claim ops inside a composite of the first."""
    queries: list[str] = []

    def supports(binding: Binding) -> Support:
        queries.append(binding.op.name)
        return Support()

    module = R.parse("""
def main(x: R.Tensor((4, 4)), w: R.Tensor((4, 4))):
    a = R.nn.dense(x, w)
    b = R.nn.relu(a)
    c = R.exp(b)
    return c
""")
    dense_relu = CompositePattern("aone.dense_relu", is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard())))
    parted = partition(module, [fake_backend("aone", [], [dense_relu]), fake_backend("btwo", supports=supports)])
    assert queries == ["exp"]
    assert [name for name in parted.functions if name != "main"] == ["aone_main_0", "btwo_main_0"]
