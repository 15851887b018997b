"""Numbers of devices in files, declarations and options: laws, and refused choices."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import process_time

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine
from byoc_core import script as R
from byoc_core.errors import CodegenError, LinkError, OptionsError, ProgramError
from byoc_core.lower import lower
from byoc_core.partitioning import PartitionOptions, RunCodegen, partition
from byoc_core.runtime.devices import MemoryDomain
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.transform import evaluate_function
from byoc_core.vm import Program, VMFunction, decode, encode, verify
from byoc_core.vm.domain_laws import check_program_domains

from core.tests.devices.several_devices import CALLING, PIPE, X, placed, two_devices
from core.tests.devices.toys import DeviceToy, build_on

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")


def test_an_artifact_names_its_devices_and_keeps_its_bytes(tmp_path: Path) -> None:
    two = placed(PIPE, devices_from={"b": 1}).program
    assert two.device_numbers == (0, 1)
    data = encode(two)
    assert data[8:10] == b"\x05\x00"
    assert decode(data) == two
    one = placed(PIPE).program
    assert (one.device_numbers, one.domain_names, encode(one)[8:10]) == ((), ("npu",), b"\x04\x00")
    second = placed(PIPE, devices={"*": 1}).program
    assert (second.device_numbers, second.domain_names) == ((1,), ("npu:1",))


FUNCTION = VMFunction("main", (), (), (), (), (), (), ())
NPU = MemoryDomain("npu")
LAWS: dict[str, tuple[Program, str]] = {
    "one device twice": (
        Program((FUNCTION,), domains=(NPU, NPU), device_numbers=(1, 1)),
        "domain 2: has no name of its own; got 'npu:1'",
    ),
    "two kinds of memory": (
        Program((FUNCTION,), domains=(NPU, MemoryDomain("npu", 128)), device_numbers=(0, 1)),
        f"domain 2: states `npu` in another way; got {MemoryDomain('npu', 128)}, expected {NPU}",
    ),
    "a number for one of two": (
        Program((FUNCTION,), domains=(NPU, MemoryDomain("gpu")), device_numbers=(1,)),
        (
            "program: has other numbers of devices than domains; got [1], expected a number for each of 2 domains, "
            "or none if all are 0"
        ),
    ),
    "no numbers but 0": (
        Program((FUNCTION,), domains=(NPU,), device_numbers=(0,)),
        (
            "program: has other numbers of devices than domains; got [0], expected a number for each of 1 domains, "
            "or none if all are 0"
        ),
    ),
    "the host's name and the number of a device": (
        Program((FUNCTION,), domains=(MemoryDomain("host"),), device_numbers=(1,)),
        "domain 1: has no name of its own; got 'host'",
    ),
    "a number beyond 32 bits": (
        Program((FUNCTION,), domains=(NPU, NPU), device_numbers=(2**31 - 1, 2**31)),
        "domain 2: has an impossible number of a device; got 2147483648, expected 0 to 2147483647",
    ),
    "a name like another's number": (
        Program((FUNCTION,), domains=(NPU, MemoryDomain("npu:1"), NPU), device_numbers=(0, 0, 1)),
        "domain 3: has no name of its own; got 'npu:1'",
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_declarations_of_devices_obey_laws(name: str) -> None:
    program, message = LAWS[name]
    with pytest.raises(ProgramError) as caught:
        check_program_domains(program)
    assert str(caught.value) == message


def test_programs_of_many_domains_are_checked_in_linear_time() -> None:
    domains = tuple(MemoryDomain(f"d{index}") for index in range(50_000))
    data = encode(Program((), domains=domains, device_numbers=(1, *[0] * (len(domains) - 1))))
    start = process_time()
    program = decode(data)
    verify(program)
    assert program.domain_names == ("d0:1", *(domain.name for domain in domains[1:]))
    assert [program.domain_name(index) for index in range(1, len(domains) + 1)] == list(program.domain_names)
    assert process_time() - start < 5  # 0.5 s is usual; work growing with the square takes a minute


def test_a_copy_between_devices_of_one_memory_goes_through_the_host() -> None:
    program = placed(PIPE, devices_from={"b": 1}).program
    (function,) = program.functions
    swapped = tuple({1: 2, 2: 1}.get(domain, domain) for domain in function.domains)
    with pytest.raises(ProgramError):
        verify(replace(program, functions=(replace(function, domains=swapped),)))


def refusals() -> dict[str, tuple[Callable[[], object], type[Exception], str]]:
    executable = placed(PIPE, devices_from={"b": 1})
    device = ProtectedDevice("npu")
    return {
        "the memory without a number": (
            lambda: VirtualMachine(executable, devices={"npu": 0}),
            OptionsError,
            "devices['npu']: is no domain of the program; expected npu:0, npu:1. Did you mean 'npu:1' or 'npu:0'?",
        ),
        "one domain by two names": (
            lambda: VirtualMachine(placed(PIPE), devices={"npu": device, "npu:0": device}),
            OptionsError,
            "devices['npu:0']: is given twice, by two names of a domain",
        ),
        "a negative number": (
            lambda: PartitionOptions(devices={"a": -1}),
            OptionsError,
            "devices `a`: is not the number of a device; got -1, expected 0 to 2147483647",
        ),
        "a number beyond the encoding": (
            lambda: PartitionOptions(devices_from={"a": 2**31}),
            OptionsError,
            "devices_from `a`: is not the number of a device; got 2147483648, expected 0 to 2147483647",
        ),
        "a number of many thousand digits": (
            lambda: PartitionOptions(devices={"a": 1 << 20000}),
            OptionsError,
            "devices `a`: is not the number of a device; got a number of 20001 bits, expected 0 to 2147483647",
        ),
        "no number": (
            lambda: PartitionOptions(devices_from={"a": "npu"}),  # type: ignore[dict-item]
            OptionsError,
            "devices_from `a`: is not the number of a device; got 'npu', expected 0 to 2147483647",
        ),
        "two numbers for an op": (
            lambda: placed(PIPE, devices={"a": 0, "main/a": 1}),
            OptionsError,
            "devices `main/a`: places `a` to `1`, but `a` places the op to `0`",
        ),
        "no op": (
            lambda: placed(PIPE, devices_from={"zz": 1}),
            OptionsError,
            "devices_from `zz`: matches no op. `byoc explain` prints the names.",
        ),
        "the name of a call": (
            lambda: placed(CALLING, devices={"b": 1}),
            OptionsError,
            (
                "devices `b`: names only calls, and no backend takes calls. Name ops of the called function: "
                "`function/name`."
            ),
        ),
        "the name of a call with dependents": (
            lambda: placed(CALLING, devices_from={"b": 1}),
            OptionsError,
            (
                "devices_from `b`: names only calls, and no backend takes calls. Name ops of the called function: "
                "`function/name`."
            ),
        ),
        "no number in a function": (
            lambda: RunCodegen(backends=[DeviceToy()])(
                R.parse(
                    """
def f(x: R.Tensor((3,))):
    R.func_attr({"Codegen": "npu", "global_symbol": "f_lib", "device": "one"})
    y = R.abs(x)
    return y
"""
                )
            ),
            CodegenError,
            "function `f`: names no device; got 'one', expected `device`: a number of 0 to 2147483647",
        ),
        "a negative number in a call": (
            lambda: lower(
                R.parse(
                    """
def main(x: R.Tensor((3,))):
    y = R.call_dps_packed("f", (x,), device=-1, out_types=[R.Tensor((3,))])
    return y
"""
                )
            ),
            CodegenError,
            "function `main`, call of `f`: names no device; got -1, expected 0 to 2147483647",
        ),
        "a function on two devices": (
            lambda: lower(
                R.parse(
                    """
def main(x: R.Tensor((3,))):
    y = R.call_dps_packed("f", (x,), device=1, out_types=[R.Tensor((3,))])
    z = R.call_dps_packed("f", (y,), out_types=[R.Tensor((3,))])
    return z
"""
                )
            ),
            CodegenError,
            "function `main`, call of `f`: names another device than an earlier call; got 0, expected 1",
        ),
        "an absent device": (
            lambda: VirtualMachine(executable, devices={"npu:0": device}),
            LinkError,
            "device `npu:1`: is not on this machine; got no device. `byoc doctor` shows the state of the runtime.",
        ),
    }


@pytest.mark.parametrize("name", refusals())
def test_refusals(name: str) -> None:
    make, kind, message = refusals()[name]
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value) == message


def test_a_composite_runs_on_the_device_of_its_last_op_and_the_host_has_no_devices() -> None:
    module = partition(PIPE, [DeviceToy(ops=["exp", "negative"])], partition_options=PartitionOptions(devices={"*": 2}))
    assert [function.attrs.get("device") for function in module.functions.values()] == [2, None]
    program = build_on(PIPE, DeviceToy(ops=["exp"]), partition_options=PartitionOptions(devices={"a": 1})).program
    assert program.device_numbers == ()


def test_a_session_takes_devices_by_number() -> None:
    devices = two_devices()
    options = PartitionOptions(devices_from={"b": 1})
    session = byoc_core.Session(
        PIPE, backends=[DeviceToy()], partition_options=options, device={"npu:0": devices[0], "npu:1": devices[1]}
    )
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], evaluate_function(PIPE, "main", [X])[0])
    with pytest.raises(OptionsError) as caught:
        byoc_core.Session(PIPE, backends=[DeviceToy()], partition_options=options, device=devices[0])
    assert str(caught.value) == (
        "device: is given for a program of several domains; expected a mapping by npu:0, npu:1"
    )


def test_dependents_of_an_op_of_a_called_function_are_placed() -> None:
    program = placed(CALLING, devices_from={"f/e": 1}).program
    assert (program.device_numbers, program.domain_names) == ((1,), ("npu:1",))
