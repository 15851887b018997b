"""Constraints on the command line: `--force`, `--stop-at`, `--allow`, the limits and `--sideways`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from byoc_core.backend.registry import Backends

from core.tests.cli.conftest import RunByoc
from core.tests.conftest import FakeBackend

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]


@pytest.fixture
def plugged(byoc: RunByoc, fake_backend: type[FakeBackend], monkeypatch: pytest.MonkeyPatch) -> RunByoc:
    """Run a command with the backends `aone` and `btwo` available."""
    real = Backends.get
    fakes = {name: fake_backend(name, None) for name in ("aone", "btwo")}

    def get(self: Backends, backend: object) -> Any:
        return real(self, fakes.get(backend, backend) if isinstance(backend, str) else backend)

    monkeypatch.setattr(Backends, "get", get)
    return byoc


def explained(plugged: RunByoc, model: Path, *flags: str) -> dict[str, str]:
    done = plugged("explain", model, "--backend", "aone", "--backend", "btwo", "--json", *flags)
    assert (done.code, done.err) == (0, "")
    return {row["name"]: row["outcome"] for row in json.loads(done.out)["ops"]}


FLAGS: Mapping[str, tuple[Sequence[str], set[str]]] = {
    "nothing": ((), {"aone"}),
    "force": (("--force", "*=host", "--force", "%lv3=btwo"), {"host", "btwo"}),
    "ops": (("--min-ops", "99"), {"host"}),
    "FLOPs": (("--min-flops", "999999"), {"host"}),
    "bytes": (("--min-bytes", "999999"), {"host"}),
    "sideways": (("--sideways",), {"aone"}),
}


@pytest.mark.parametrize("what", FLAGS)
def test_flags_say_who_takes_what(what: str, plugged: RunByoc, model: Path) -> None:
    flags, expected = FLAGS[what]
    assert set(explained(plugged, model, *flags).values()) == expected


def test_names_are_those_that_explain_prints(plugged: RunByoc, model: Path) -> None:
    names = list(explained(plugged, model))
    for name in names:
        found = explained(plugged, model, "--force", f"{name}=btwo")
        assert found == {other: "btwo" if other == name else "aone" for other in names}
    stopped = explained(plugged, model, "--stop-at", names[0])
    assert [stopped[name] for name in names] == ["aone"] + ["host"] * (len(names) - 1)
    allowed = explained(plugged, model, "--allow", "aone=add", "--allow", "btwo=nn.*")
    assert (allowed[names[-1]], set(allowed.values())) == ("aone", {"aone", "btwo", "host"})


def test_ops_on_two_devices_are_two_regions(plugged: RunByoc, model: Path) -> None:
    def regions(*flags: str) -> int:
        done = plugged("explain", model, "--backend", "aone", "--json", *flags)
        assert (done.code, done.err) == (0, "")
        return len([region for region in json.loads(done.out)["regions"] if region["backend"] == "aone"])

    last = list(explained(plugged, model))[-1]
    assert (regions(), regions("--device", f"{last}=1"), regions("--device-from", f"{last}=1")) == (1, 2, 2)
    assert regions("--device", "*=1", "--device-from", f"{last}=2") == 1


def test_compile_takes_the_same_flags(plugged: RunByoc, model: Path) -> None:
    done = plugged("compile", model, "-o", "m.byoc", "--backend", "aone", "--force", "z=nowhere")
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: force `z`: no backend `nowhere` takes part; expected aone, host\n"


WRONG: Mapping[str, tuple[Sequence[str], str]] = {
    "no backend": (("--force", "conv"), "--force: is malformed; got 'conv', expected NAME=BACKEND"),
    "no name": (("--force", "=aone"), "--force: is malformed; got '=aone', expected NAME=BACKEND"),
    "twice": (("--force", "a=aone", "--force", "a=btwo"), "--force a: is given twice; got 'aone' and 'btwo'"),
    "no ops": (("--allow", "aone"), "--allow: is malformed; got 'aone', expected BACKEND=OP,OP"),
    "unknown op": (
        ("--allow", "aone=add,relu"),
        "allow `aone`: no op matches `relu`. Did you mean 'nn.relu' or 'trilu' or 'nn.prelu'?",
    ),
    "unknown name": (("--stop-at", "nowhere"), "stop_at `nowhere`: matches no op. `byoc explain` prints the names."),
    "no number of a device": (
        ("--device", "a=npu"),
        "--device a: is not the number of a device; got 'npu', expected 0 to 2147483647",
    ),
    "a number of a device beyond the encoding": (
        ("--device-from", "a=2147483648"),
        "--device-from a: is not the number of a device; got '2147483648', expected 0 to 2147483647",
    ),
    "a number of a device of 5,000 digits": (
        ("--device", f"a={'9' * 5000}"),
        f"--device a: is not the number of a device; got '{'9' * 40}...', expected 0 to 2147483647",
    ),
    "unknown name for a device": (
        ("--device-from", "nowhere=1"),
        "devices_from `nowhere`: matches no op. `byoc explain` prints the names.",
    ),
    "negative": (("--min-ops", "-3"), "min_ops: is not a valid limit; got -3, expected an integer of 0 or more"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("command", ["compile {} -o m.byoc", "explain {}"])
def test_wishes_that_cannot_be_met(what: str, command: str, plugged: RunByoc, model: Path) -> None:
    flags, text = WRONG[what]
    done = plugged(*command.format(model).split(), "--backend", "aone", "--backend", "btwo", *flags)
    assert (done.code, done.out, done.err) == (1, "", f"error: {text}\n")
    assert not Path("m.byoc").exists()


def test_a_limit_that_is_no_number_is_a_usage_error(plugged: RunByoc, model: Path) -> None:
    done = plugged("explain", model, "--min-ops", "few")
    assert (done.code, done.out) == (2, "")
    assert "'--min-ops'" in done.err


def test_an_artifact_is_decided_already(byoc: RunByoc, model: Path) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "-q").code == 0
    done = byoc("explain", "m.byoc", "--min-ops", "3")
    where = "--force, --stop-at, --device, --device-from, --allow, --min-* and --sideways"
    text = f"error: {where}: do not apply to the compiled model `m.byoc`\n"
    assert (done.code, done.out, done.err) == (1, "", text)


@pytest.mark.parametrize("command", ["compile", "explain"])
def test_help_tells_of_constraints(command: str, byoc: RunByoc) -> None:
    done = byoc(command, "--help")
    for flag in (
        "--force",
        "--stop-at",
        "--device",
        "--device-from",
        "--allow",
        "--min-ops",
        "--min-flops",
        "--min-bytes",
        "--sideways",
    ):
        assert flag in done.out
