"""Overrides: strict, with reasons, and only for existing tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from byoc_conformance.outcome import Cell, Outcome, Status
from byoc_conformance.overrides import Overrides, read_overrides, select_ids
from byoc_conformance.verdict import Judgement, Verdict, judge
from byoc_core.errors import OptionsError

from conformance.tests.samples import new_result

IDS = ("L0-lint", "L2-op[add]", "L2-op[nn.conv2d]", "L2-op-pairs", "L4-threads")
WHY = "the driver drops the last lane"


def test_a_reason_is_found_by_id_and_by_pattern() -> None:
    overrides = Overrides({"L2-*": WHY, "L4-threads": "one queue in this SDK"}, IDS)
    found = {name: overrides.reason(name) for name in IDS}
    assert found == {
        "L0-lint": None,
        "L2-op[add]": WHY,
        "L2-op[nn.conv2d]": WHY,
        "L2-op-pairs": WHY,
        "L4-threads": "one queue in this SDK",
    }


def test_an_id_goes_before_patterns_and_a_pattern_before_those_behind_it() -> None:
    overrides = Overrides({"L2-*": "the first of two", "L2-op*": "the second of two", "L2-op[add]": "its own one"}, IDS)
    assert overrides.reason("L2-op[add]") == "its own one"
    assert overrides.reason("L2-op-pairs") == "the first of two"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("L2-op[add]", ["L2-op[add]"]),
        ("L2-op[*]", ["L2-op[add]", "L2-op[nn.conv2d]"]),
        ("*", list(IDS)),
        ("L?-op[ad?]", ["L2-op[add]"]),
        ("L2-op[nnxconv2d]", []),
        ("L2-op", []),
    ],
)
def test_brackets_and_dots_of_patterns_stand_for_themselves(pattern: str, expected: list[str]) -> None:
    assert select_ids(pattern, IDS) == expected


@pytest.mark.parametrize(
    ("reasons", "text"),
    [
        ({"L0-lint": ""}, "x.toml, `L0-lint`: gives no reason; got '', expected a reason of at least 3 words"),
        (
            {"L0-lint": "known  bug"},
            "x.toml, `L0-lint`: gives no reason; got 'known  bug', expected a reason of at least 3 words",
        ),
        ({"L0-lind": WHY}, "x.toml, `L0-lind`: names no test of the kit. Did you mean 'L0-lint'?"),
        ({"Q*": WHY}, "x.toml, `Q*`: names no test of the kit. `byoc conformance --list` shows all promises."),
    ],
)
def test_what_is_no_override(reasons: dict[str, str], text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Overrides(reasons, IDS, where="x.toml")
    assert str(caught.value) == text


def test_a_file_gives_its_table(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f'[xfail]\n"L2-op[add]" = "{WHY}"\n')
    assert read_overrides(path) == {"L2-op[add]": WHY}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is no file of overrides; got nothing, expected a single table `xfail`"),
        ("[skip]\n[xfail]\n", "is no file of overrides; got `skip`, `xfail`, expected a single table `xfail`"),
        ("xfail = 3", "is no file of overrides; got `xfail`, expected a single table `xfail`"),
        ("[xfail]\na = 3", "got 3, expected text"),
        ("[xfail", "is no TOML file: "),
    ],
)
def test_a_file_that_holds_something_else(tmp_path: Path, content: str, text: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(content)
    with pytest.raises(OptionsError) as caught:
        read_overrides(path)
    assert text in str(caught.value)
    assert str(caught.value).startswith(f"{path}")


@pytest.mark.parametrize("status", list(Status))
def test_without_an_override_a_test_counts_as_it_ended(status: Status) -> None:
    judged = judge(new_result(Outcome(status, "so it was")), None)
    assert judged == Judgement("L2-op[add]", Verdict(status.value), "so it was", 1.5)
    assert judged.verdict.is_red == status.is_broken


@pytest.mark.parametrize("status", [Status.FAILED, Status.CRASHED, Status.HUNG])
def test_a_broken_test_with_an_override_is_expected(status: Status) -> None:
    judged = judge(new_result(Outcome(status, "lane 3 is 0")), WHY)
    assert judged == Judgement("L2-op[add]", Verdict.XFAILED, f"{status}: lane 3 is 0", 1.5, WHY)
    assert not judged.verdict.is_red


@pytest.mark.parametrize("status", [Status.PASSED, Status.DECLINED, Status.NOT_COVERED])
def test_a_test_with_an_override_that_is_not_broken_is_red(status: Status) -> None:
    judged = judge(new_result(Outcome(status, "")), WHY)
    text = f"is expected to be broken ({WHY}), but is not: {status}\nRemove the test from the overrides."
    assert judged == Judgement("L2-op[add]", Verdict.XPASSED, text, 1.5, WHY)
    assert judged.verdict.is_red


def test_a_judgement_travels_as_json() -> None:
    cells = (Cell("add", "float32", Status.PASSED), Cell("add", "int8", Status.DECLINED))
    judged = judge(new_result(Outcome(Status.FAILED, "x", cells)), None)
    plain: Any = judged.to_json()
    assert type(plain["verdict"]) is str
    assert Judgement.from_json(plain) == judged
