"""Times of ops from profiles, moves of regions, and tables of tasks."""

from __future__ import annotations

from typing import Any

import pytest
from byoc_core.profiling import OpName, PartProfile, Peaks, Profile, RegionProfile
from byoc_core.tuning.proposals import Move, measured_ops, moved_ops, moved_regions, spread_ops
from byoc_core.tuning.table import Task, tasks_of


def row(function: str, name: str, region: str | None, flops: object = 0) -> dict[str, Any]:
    return {"function": function, "name": name, "region": region, "flops": flops}


def part(name: str, values: str, seconds: float, calls: float = 1.0, flops: float = 0.0) -> PartProfile:
    ops = tuple(OpName(f"op_{value[0]}", value) for value in values.split())
    return PartProfile(name, ops, calls, seconds, flops, 2 * flops)


REPORT = {
    "ops": [
        row("main", "a", "r0", 10),
        row("main", "b", "r0", 99),
        row("main", "c", "r0", "n"),
        row("side", "a", "r1", 10),
        row("main", "d", "r2", 10),
        row("main", "e", None, 10),
    ]
}
REGIONS = (
    RegionProfile("r0", "aone", 1, 12.0, parts=(part("k0", "a b", 3.0), part("k1", "c", 1.0), part("pack", "", 2.0))),
    RegionProfile("r1", "aone", 2, 5.0, parts=(part("k2", "a", 2.0, 2), part("k3", "a", 2.0, 2))),
    RegionProfile("r2", "btwo", 1, 7.0, parts=(part("k4", "d", 7.0),)),
    RegionProfile("host_0", "host", 1, 1.0),
    RegionProfile("copies of main", "vm", 1, 1.0),
)


def profiled(*regions: RegionProfile, peaks: Peaks | None = None) -> Profile:
    return Profile("main", {}, 1, 10, 30.0, regions or REGIONS, peaks, REPORT)


def test_time_belongs_to_ops_by_flops_and_regions_are_shared_by_time() -> None:
    # 4 s of ops in 12 s of r0: each op three times its parts
    assert measured_ops(profiled(), "aone") == pytest.approx(
        {"main/a": 9.0 * 10 / 109, "main/b": 9.0 * 99 / 109, "main/c": 3.0, "side/a": 5.0}
    )
    assert measured_ops(profiled(), "btwo") == {"main/d": 7.0}
    assert measured_ops(profiled(), "cthree") == {}


def test_all_the_time_of_the_regions_is_given_to_ops() -> None:
    for backend in ("aone", "btwo"):
        total = sum(region.seconds for region in REGIONS if region.backend == backend)
        assert sum(measured_ops(profiled(), backend).values()) == pytest.approx(total)


def test_regions_without_times_give_no_numbers_to_share() -> None:
    idle = RegionProfile("r0", "aone", 0, 0.0, parts=(part("k0", "a b", 0.0),))
    assert measured_ops(profiled(idle), "aone") == {"main/a": 0.0, "main/b": 0.0}
    assert measured_ops(profiled(RegionProfile("r0", "aone", 1, 3.0)), "aone") == {}
    unknown = RegionProfile("r0", "aone", 1, 3.0, parts=(part("k0", "zz", 3.0),))
    assert measured_ops(profiled(unknown), "aone") == {}


def sized_row(name: str, region: str, flops: object, nbytes: object) -> dict[str, Any]:
    return {**row("main", name, region, flops), "nbytes_read": nbytes, "nbytes_written": 0}


def test_times_of_regions_without_parts_are_spread_by_operations_or_bytes() -> None:
    rows = [sized_row("a", "r0", 300, 10), sized_row("b", "r0", 0, "10 * n"), sized_row("c", "r1", 0, 0)]
    regions = (
        RegionProfile("r0", "aone", 1, 12.0, parts=(part("pack", "", 1.0),)),
        RegionProfile("r1", "aone", 1, 2.0),
        RegionProfile("r2", "aone", 1, 7.0, parts=(part("k4", "d", 7.0),)),
        RegionProfile("r3", "btwo", 1, 7.0),
    )
    found = Profile(
        "main", {"n": 1}, 1, 10, 30.0, regions, Peaks(100.0, 10.0), {"ops": [*rows, sized_row("d", "r2", 1, 1)]}
    )
    assert spread_ops(found, "aone") == {"main/a": 9.0, "main/b": 3.0, "main/c": 2.0}
    larger = Profile("main", {"n": 3}, 1, 10, 30.0, regions, Peaks(100.0, 10.0), {"ops": rows})
    assert spread_ops(larger, "aone") == {"main/a": 6.0, "main/b": 6.0, "main/c": 2.0}
    assert measured_ops(found, "aone").keys() == {"main/d"}


def test_single_ops_move_where_a_time_is_uncertain() -> None:
    rows = [row("main", name, region) for name, region in (("a", "r0"), ("b", "r0"), ("c", "r0"), ("d", "r1"))]
    placement = dict.fromkeys(("main/a", "main/b", "main/c", "main/d"), "aone")
    able = {"aone": placement, "btwo": {**dict.fromkeys(placement, "btwo"), "main/c": "host"}}
    uncertain = {"aone": {"main/a": 1.0, "main/c": 9.0, "main/d": 3.0}, "btwo": {"main/b": 5.0}}
    assert list(moved_ops({"ops": rows}, placement, uncertain, able)) == [
        Move("main/b to btwo", {**placement, "main/b": "btwo"}),
        Move("main/a to btwo", {**placement, "main/a": "btwo"}),
    ]
    assert list(moved_ops({"ops": rows}, placement, {}, able)) == []


def test_regions_move_to_the_backends_able_to_take_some_of_their_ops() -> None:
    placement = {"main/a": "aone", "main/b": "aone", "main/c": "aone", "side/a": "aone", "main/d": "btwo"}
    able = {
        "aone": {**dict.fromkeys(placement, "aone"), "main/d": "host"},
        "btwo": {"main/a": "btwo", "main/b": "host", "main/c": "btwo", "side/a": "host", "main/d": "btwo"},
        "cthree": {"main/d": "cthree"},
    }
    moves = list(moved_regions(REPORT, placement, {"r2": 20.0, "r0": 12.0, "r1": 5.0}, able))
    assert moves == [
        Move("r2 to cthree", {**placement, "main/d": "cthree"}),
        Move("r0 to btwo", {**placement, "main/a": "btwo", "main/c": "btwo"}),
    ]
    assert list(moved_regions(REPORT, placement, {}, {})) == []
    assert placement["main/a"] == "aone"


def test_equal_parts_are_a_task() -> None:
    regions = (
        RegionProfile(
            "r0", "aone", 1, 9.0, parts=(part("k0", "a b", 4.0, 2, 40.0), part("k1", "c", 1.0), part("k2", "", 0.5))
        ),
        RegionProfile("r1", "aone", 1, 9.0, parts=(part("k0", "a2 b2", 2.0, 1, 20.0),)),
        RegionProfile("r2", "btwo", 1, 3.0, parts=(part("k0", "a3 b3", 3.0, 1, 20.0), part("k1", "d", 0.0, 0))),
    )
    figures = {"aone": {"main/a": 1.0, "main/c": 1.0}, "btwo": {"main/b": 1.0}, "cthree": {"main/zz": 1.0}}
    tasks = tasks_of(profiled(*regions, peaks=Peaks(100.0, 1.0)), figures)
    assert tasks == [
        Task("op_a op_b", "aone", 20.0, 3.0, 2.0, 2, 0.1),
        Task("op_a op_b", "btwo", 20.0, 1.0, 3.0, 0, 20.0 / 3.0 / 100.0),
        Task("op_c", "aone", 0.0, 1.0, 1.0, 1, 0.0),
        Task("k2", "aone", 0.0, 1.0, 0.5, 0, 0.0),
        Task("op_d", "btwo", 0.0, 0.0, 0.0, 0, 0.0),
    ]
    assert all(task.peak_share == 0.0 for task in tasks_of(profiled(*regions), figures))
    assert tasks_of(profiled(RegionProfile("r", "aone", 1, 1.0)), {}) == []
