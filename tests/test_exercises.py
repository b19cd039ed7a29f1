"""The stubs: what an untouched exercise says, and that its contract is written once."""

from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys

import pytest

from memstrat import evidence, exercises
from memstrat.exercises import EXERCISES


def test_index_names_the_three_exercises_in_order():
    assert {key: item.function_name for key, item in EXERCISES.items()} == {
        "ex_validate": "validate_strategy_experiment",
        "ex_pairs": "build_strategy_pair_evidence",
        "ex_handoff": "decide_strategy_handoff",
    }
    assert list(EXERCISES) == ["ex_validate", "ex_pairs", "ex_handoff"]


@pytest.mark.parametrize("grade_id", ["ex_validate", "ex_pairs", "ex_handoff"])
def test_index_addresses_lead_to_stub_and_reference(grade_id):
    item = EXERCISES[grade_id]
    stub = pkgutil.resolve_name(item.stub_address)
    reference = pkgutil.resolve_name(item.reference_address)
    assert stub is getattr(exercises, item.function_name)
    assert reference is getattr(evidence, item.function_name)
    assert item.grade_id == grade_id


@pytest.mark.parametrize(
    ("grade_id", "arguments"),
    [("ex_validate", ({}, [])), ("ex_pairs", ({}, [])), ("ex_handoff", ({},))],
)
def test_stub_raises_the_uniform_error_that_names_its_exercise(grade_id, arguments):
    name = EXERCISES[grade_id].function_name
    with pytest.raises(NotImplementedError) as caught:
        getattr(exercises, name)(*arguments)
    assert str(caught.value) == f"{grade_id}: not done yet. Write {name} from its docstring."


@pytest.mark.parametrize("name", [item.function_name for item in EXERCISES.values()])
def test_reference_takes_docstring_and_signature_from_the_stub(name):
    stub, reference = getattr(exercises, name), getattr(evidence, name)
    assert reference.__doc__ is stub.__doc__
    assert inspect.signature(reference) == inspect.signature(stub)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("validate_strategy_experiment",
         ["candidate:missing_name", "duplicate_name", "workload_id_mismatch",
          "hardware_id_mismatch", "repeat_count_mismatch", "execution_path_unverified",
          "baseline:invalid_metrics", "is_valid", "issues", "candidate_names"]),
        ("build_strategy_pair_evidence",
         ["comparisons", "comparable_count", "oom_count", "failed_count", "invalid_count",
          "candidate_peak_memory_mb", "candidate_samples_per_s", "candidate_eval_loss",
          "memory_saving_mb", "throughput_ratio", "quality_delta", "MiB"]),
        ("decide_strategy_handoff",
         ["rerun_required", "insufficient_repeats", "repeat_paired_runs", "no_valid_candidate",
          "no_comparable_strategy", "repair_strategy_execution", "ready_for_budget_review",
          "paired_evidence_complete", "send_to_memory_budget_project", "eligible_candidates"]),
    ],
)
def test_docstring_names_every_word_a_solution_must_return(name, words):
    docstring = getattr(exercises, name).__doc__
    assert [word for word in words if word not in docstring] == []


def test_importing_exercises_loads_neither_torch_nor_pydantic_nor_numpy():
    heavy = "[name for name in ('torch', 'pydantic', 'numpy') if name in sys.modules]"
    program = f"import sys, memstrat.exercises, memstrat.decision; print({heavy})"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
