"""The modules changed by mutation testing, and the tests expected to notice."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True)
class Target:
    """Modules mutated together.

    Attributes:
        package: the import package of the modules.
        modules: files, relative to the package's folder; ``*`` matches any text.
        tests: test files and folders, relative to the root of the checkout.
        left_out: ids of tests taking seconds each; these do not run.
    """

    package: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    left_out: tuple[str, ...] = ()


_PLANNED = (
    "batch_norm", "checks", "core_functions", "dtypes", "finite", "flattening", "in_place", "layouts", "moves",
    "pixel_packing", "planner", "planner_answers", "products", "profile", "quantised", "regions", "weights",
)  # fmt: skip

_LONG = (
    "core_functions.py::test_log_softmax_along_any_axis_of_any_layout",
    "flattening.py::test_rows_of_any_layout_meet_their_weights",
    "moves.py::test_slices_of_any_geometry",
    "pixel_packing.py::test_all_geometries",
    "products.py::test_few_rows_stay_innermost_between_products",
    "quantised.py::test_a_quantised_model_is_offloaded_saved_and_loaded",
    "quantised.py::test_without_such_instructions_floats_are_multiplied",
    "regions.py::test_each_number_of_threads_has_its_primitives_and_the_weights_are_packed_once",
)

TARGETS = {
    "vm-verify": Target(
        "byoc_core",
        ("vm/verify.py",),
        ("core/tests/vm/test_vm_verify.py", "core/tests/vm/test_vm_views.py"),
    ),
    "vm-dataflow": Target(
        "byoc_core",
        ("vm/dataflow.py",),
        (
            "core/tests/vm/test_vm_dataflow.py",
            "core/tests/vm/test_vm_paths.py",
            "core/tests/vm/test_vm_verify.py",
            "core/tests/vm/test_vm_views.py",
        ),
        ("core/tests/vm/test_vm_dataflow.py::test_verifying_ten_thousand_instructions_takes_one_pass",),
    ),
    "state-laws": Target(
        "byoc_core",
        ("vm/state_laws.py",),
        ("core/tests/vm/test_state_laws.py", "core/tests/lower/test_states.py"),
    ),
    "memory-map": Target(
        "byoc_core",
        ("runtime/pools.py", "vm/liveness.py", "vm/memory_map.py"),
        (
            "core/tests/runtime/test_pools.py",
            "core/tests/vm/test_memory_map.py",
            "core/tests/vm/test_vm_dataflow.py",
            "core/tests/vm/test_vm_paths.py",
            "core/tests/vm/test_vm_views.py",
        ),
        (
            "core/tests/runtime/test_pools.py::test_many_buffers_in_a_pool_with_a_limit",
            "core/tests/vm/test_vm_dataflow.py::test_verifying_ten_thousand_instructions_takes_one_pass",
        ),
    ),
    "merging": Target(
        "byoc_core",
        ("partitioning/merging/*.py",),
        (
            "core/tests/partitioning/test_data_dependent_regions.py",
            "core/tests/partitioning/test_grouping.py",
            "core/tests/partitioning/test_merging_refusals.py",
            "core/tests/partitioning/test_merging_nesting.py",
            "core/tests/partitioning/test_merging_regions.py",
            "core/tests/partitioning/test_merging_sideways.py",
            "core/tests/partitioning/test_partition_scenarios.py",
            "core/tests/partitioning/test_search_limits.py",
        ),
        (
            "core/tests/partitioning/test_merging_nesting.py::test_the_deepest_nest_is_partitioned_built_and_run",
            "core/tests/partitioning/test_search_limits.py::test_the_report_and_the_near_miss_say_it_too",
        ),
    ),
    "plan-storage": Target(
        "byoc_core",
        (
            "runtime/climb_storage.py",
            "runtime/plan_storage.py",
            "runtime/storage_gaps.py",
            "runtime/sweep_storage.py",
            "runtime/symbolic_storage.py",
        ),
        (
            "core/tests/runtime/test_plan_reference.py",
            "core/tests/runtime/test_plan_storage.py",
            "core/tests/runtime/test_sweep_storage.py",
            "core/tests/runtime/test_symbolic_storage.py",
        ),
        (
            "core/tests/runtime/test_plan_storage.py::test_ten_thousand_buffers",
            "core/tests/runtime/test_sweep_storage.py::test_plans_of_very_many_live_buffers_stay_near_the_peak",
        ),
    ),
    "archive": Target(
        "byoc_core",
        ("artifact/archive.py",),
        ("core/tests/artifact/test_archive.py", "core/tests/artifact/test_archive_format.py"),
        ("core/tests/artifact/test_archive.py::test_a_hundred_thousand_members_come_back",),
    ),
    "artifact": Target(
        "byoc_core",
        (
            "artifact/constants.py",
            "artifact/inspection.py",
            "artifact/loading.py",
            "artifact/manifest.py",
            "artifact/saving.py",
            "artifact/trusted.py",
        ),
        (
            "core/tests/artifact/test_artifact.py",
            "core/tests/artifact/test_artifact_texts.py",
            "core/tests/artifact/test_hostile_artifact.py",
            "core/tests/artifact/test_native_artifact.py",
            "core/tests/artifact/test_shared_constants.py",
        ),
        (
            "core/tests/artifact/test_artifact.py::test_any_flipped_byte_is_refused",
            "core/tests/artifact/test_artifact.py::test_exported_library_holds_everything",
            "core/tests/artifact/test_native_artifact.py::test_library_cut_short_is_refused",
            "core/tests/artifact/test_native_artifact.py::test_library_exports_the_regions_to_strangers",
            "core/tests/artifact/test_native_artifact.py::test_library_runs_in_a_fresh_process",
        ),
    ),
    "dnnl-planner": Target(
        "byoc_dnnl",
        ("planner.py",),
        tuple(f"plugins/dnnl/tests/test_dnnl_{name}.py" for name in _PLANNED),
        tuple(f"plugins/dnnl/tests/test_dnnl_{test}" for test in _LONG),
    ),
}
