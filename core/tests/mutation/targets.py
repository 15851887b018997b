"""The modules that mutation testing changes, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True)
class Target:
    """Modules that are mutated together.

    Attributes:
        package: the import package of the modules.
        modules: files, relative to the package's folder; ``*`` matches any text.
        tests: test files and folders, relative to the root of the checkout.
        left_out: ids of tests that take seconds each; they do not run.
    """

    package: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    left_out: tuple[str, ...] = ()


TARGETS = {
    "vm-verify": Target(
        "byoc_core",
        ("vm/verify.py",),
        ("core/tests/vm/test_vm_verify.py", "core/tests/vm/test_vm_views.py"),
    ),
    "vm-dataflow": Target(
        "byoc_core",
        ("vm/dataflow.py",),
        ("core/tests/vm/test_vm_verify.py", "core/tests/vm/test_vm_dataflow.py", "core/tests/vm/test_vm_views.py"),
    ),
    "merging": Target(
        "byoc_core",
        ("partitioning/merging/*.py",),
        (
            "core/tests/partitioning/test_grouping.py",
            "core/tests/partitioning/test_merging_nesting.py",
            "core/tests/partitioning/test_merging_regions.py",
            "core/tests/partitioning/test_merging_sideways.py",
            "core/tests/partitioning/test_partition_scenarios.py",
            "core/tests/partitioning/test_search_limits.py",
        ),
    ),
    "plan-storage": Target(
        "byoc_core",
        ("runtime/plan_storage.py", "runtime/sweep_storage.py"),
        ("core/tests/runtime/test_plan_storage.py", "core/tests/runtime/test_sweep_storage.py"),
        (
            "core/tests/runtime/test_plan_storage.py::test_ten_thousand_buffers",
            "core/tests/runtime/test_sweep_storage.py::test_plans_of_very_many_live_buffers_stay_near_the_peak",
        ),
    ),
    "artifact": Target(
        "byoc_core",
        (
            "artifact/archive.py",
            "artifact/constants.py",
            "artifact/inspection.py",
            "artifact/loading.py",
            "artifact/manifest.py",
            "artifact/saving.py",
            "artifact/trusted.py",
        ),
        (
            "core/tests/artifact/test_archive.py",
            "core/tests/artifact/test_artifact.py",
            "core/tests/artifact/test_hostile_artifact.py",
            "core/tests/artifact/test_native_artifact.py",
            "core/tests/artifact/test_shared_constants.py",
        ),
    ),
    "dnnl-planner": Target(
        "byoc_dnnl",
        ("planner.py",),
        ("plugins/dnnl/tests/test_dnnl_planner.py",),
    ),
}
