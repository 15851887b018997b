"""The examples of a subject: claimed, of every possible kind, and the same each time."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_conformance import Runner, Status, Subject, SubjectSpec, find_item
from byoc_conformance.examples import compile_examples, find_examples
from byoc_core.ir import print_module


def test_a_subject_has_examples_of_each_kind(fakenpu: str) -> None:
    kinds = {example.kind for example in find_examples(Subject(SubjectSpec(fakenpu)))}
    assert kinds == {"single", "two-inputs", "several-results", "constant", "symbolic", "pattern", "chain"}


def test_results_of_sizes_that_only_running_tells_are_among_them() -> None:
    kinds = {example.kind for example in find_examples(Subject(SubjectSpec("host")))}
    assert "data-dependent" in kinds


def test_a_backend_of_uncommon_dtypes_has_examples_too(fakenpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKENPU_FAULT", "takes-halves")
    partition_tests = ("L1-capability[dynamic-shapes]", "L1-capability[constants]", "L1-codegen-functions")
    with Runner(SubjectSpec(fakenpu)) as runner:
        for name in (*partition_tests, "L3-same-results", "L3-constants-kept", "L4-stateless", "L4-dynamic-shapes"):
            assert runner.run(find_item(name)).outcome.status is Status.PASSED


def test_examples_are_claimed_and_right(fakenpu: str) -> None:
    subject = Subject(SubjectSpec(fakenpu))
    attempt = compile_examples(subject)
    assert not attempt.failures
    for example in find_examples(subject):
        assert attempt.is_claimed(example.function)
        results = attempt.vm[example.function](*example.new_inputs())
        for result, expected in zip(
            results if isinstance(results, tuple) else (results,), example.expected(), strict=True
        ):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_equal_subjects_have_equal_examples(fakenpu: str) -> None:
    first, second = (find_examples(Subject(SubjectSpec(fakenpu))) for _ in range(2))
    assert [print_module(example.module) for example in first] == [print_module(example.module) for example in second]
    assert [[array.tobytes() for array in example.inputs] for example in first] == [
        [array.tobytes() for array in example.inputs] for example in second
    ]


def test_inputs_cannot_be_changed_and_copies_can(fakenpu: str) -> None:
    example = find_examples(Subject(SubjectSpec(fakenpu)))[0]
    with pytest.raises(ValueError, match="read-only"):
        example.inputs[0][...] = 0
    example.new_inputs()[0][...] = 0
