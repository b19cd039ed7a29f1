"""The check of each exercise: right answers pass, a wrong one is told the rule it breaks."""

from __future__ import annotations

import json
import subprocess
import sys

import exercise_variants as variants
import pytest

import memstrat
from memstrat.checks import EXERCISES, exercise
from memstrat.checks.judge import random_cases, visible_cases
from memstrat.checks.texts import RULES
from memstrat.checks.wire import same, to_plain
from memstrat.errors import CheckFailed, InputError, UnknownNameError

PLAIN = {"ex_validate": variants.validate, "ex_pairs": variants.pairs, "ex_handoff": variants.handoff,
         "ex_peak_floor": variants.peak_floor}
TORCH = {"ex_saved_bytes": variants.saved_bytes, "ex_pack_unpack": variants.hooks}

WRONG = [
    ("ex_validate", "duplicate", "duplicate_missed"),
    ("ex_validate", "empty_name", "missing_name_missed"),
    ("ex_validate", "checks_nameless", "nothing_after_missing_name"),
    ("ex_validate", "workload_id", "workload_ignored"),
    ("ex_validate", "hardware_id", "hardware_ignored"),
    ("ex_validate", "repeat_count", "repeats_ignored"),
    ("ex_validate", "both_missing", "missing_key_is_mismatch"),
    ("ex_validate", "path", "path_ignored"),
    ("ex_validate", "truthy", "path_exactly_true"),
    ("ex_validate", "asks_failures", "failure_rows_keep_no_path"),
    ("ex_validate", "bool", "bool_is_no_number"),
    ("ex_validate", "nan", "not_finite_is_invalid"),
    ("ex_validate", "judges_gain", "judges_candidate_gains"),
    ("ex_validate", "order", "issue_order"),
    ("ex_validate", "names_once", "names_keep_duplicates"),
    ("ex_validate", "is_valid", "valid_means_no_issue"),
    ("ex_validate", "mutates", "input_mutated"),
    ("ex_pairs", "oom_saving", "failure_is_no_saving"),
    ("ex_pairs", "oom_is_failed", "failure_rows_stay"),
    ("ex_pairs", "drops_oom", "one_row_per_candidate"),
    ("ex_pairs", "missing_status", "missing_status_reads_ok"),
    ("ex_pairs", "any_status", "unknown_status_is_invalid"),
    ("ex_pairs", "bool", "bool_is_no_number"),
    ("ex_pairs", "nan", "not_finite_is_invalid"),
    ("ex_pairs", "zero_throughput", "raised"),
    ("ex_pairs", "ignores_baseline_status", "baseline_must_be_usable"),
    ("ex_pairs", "saving_sign", "saving_sign_swapped"),
    ("ex_pairs", "round", "saving_is_difference"),
    ("ex_pairs", "ratio", "ratio_inverted"),
    ("ex_pairs", "delta_sign", "quality_sign_swapped"),
    ("ex_pairs", "path", "path_ignored"),
    ("ex_pairs", "repeats", "repeats_of_the_candidate"),
    ("ex_pairs", "counts", "counts_by_status"),
    ("ex_pairs", "no_baseline", "baseline_row_kept"),
    ("ex_handoff", "too_strict", "threshold_off_by_one"),
    ("ex_handoff", "too_lax", "threshold_off_by_one"),
    ("ex_handoff", "fixed_three", "minimum_is_an_argument"),
    ("ex_handoff", "failures_need_repeats", "failure_rows_have_no_repeats"),
    ("ex_handoff", "baseline_only", "every_comparable_needs_repeats"),
    ("ex_handoff", "candidates_only", "baseline_repeats_count_too"),
    ("ex_handoff", "path", "path_ignored"),
    ("ex_handoff", "path_first", "repeats_before_paths"),
    ("ex_handoff", "oom_is_candidate", "failure_rows_are_no_candidates"),
    ("ex_handoff", "always_ready", "no_candidate_without_path"),
    ("ex_handoff", "picks_one", "hands_over_all"),
    ("ex_handoff", "word", "reason_word"),
    ("ex_peak_floor", "always_four", "element_size_ignored"),
    ("ex_peak_floor", "no_gradients", "gradients_as_parameters"),
    ("ex_peak_floor", "one_moment", "two_moments"),
    ("ex_peak_floor", "no_temporaries", "foreach_copies_all"),
    ("ex_peak_floor", "largest_once", "largest_tensor_twice"),
    ("ex_peak_floor", "sgd_as_adamw", "sgd_keeps_nothing"),
    ("ex_peak_floor", "maximum", "floor_is_the_sum"),
    ("ex_saved_bytes", "parameters", "parameters_not_counted"),
    ("ex_saved_bytes", "relu_twice", "storage_counted_once"),
    ("ex_saved_bytes", "gelu_once", "gelu_keeps_its_input"),
    ("ex_saved_bytes", "always_four", "element_size_ignored"),
    ("ex_saved_bytes", "batch", "batch_ignored"),
    ("ex_saved_bytes", "no_input", "input_is_kept"),
    ("ex_saved_bytes", "no_output", "loss_keeps_the_output"),
    ("ex_pack_unpack", "nothing", "pair_of_callables"),
    ("ex_pack_unpack", "no_unpack", "pair_of_callables"),
    ("ex_pack_unpack", "identity", "real_copy_on_host"),
    ("ex_pack_unpack", "cpu_only", "real_copy_on_host"),
    ("ex_pack_unpack", "half", "values_restored"),
    ("ex_pack_unpack", "keeps_half", "dtype_restored"),
    ("ex_pack_unpack", "flat", "shape_restored"),
    ("ex_pack_unpack", "numpy", "unpack_gives_tensors"),
    ("ex_pack_unpack", "one_slot", "shape_restored"),
    ("ex_pack_unpack", "once", "unpack_more_than_once"),
]


@pytest.fixture(autouse=True)
def _own_work_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMSTRAT_WORK", str(tmp_path / "my_work"))
    monkeypatch.delenv("MEMSTRAT_STRICT", raising=False)
    monkeypatch.delenv("MEMSTRAT_LANGUAGE", raising=False)


@pytest.mark.parametrize("grade_id", EXERCISES)
def test_check_passes_independent_solution_and_reference(grade_id, capsys):
    for seed in range(5 if grade_id in PLAIN else 1):
        assert memstrat.check(grade_id, (PLAIN | TORCH)[grade_id], seed=seed)
    assert memstrat.check(grade_id, exercise(grade_id).reference(), seed=99)
    assert f"{grade_id}: passed" in capsys.readouterr().out


@pytest.mark.parametrize(("grade_id", "bug", "rule"), WRONG)
def test_check_names_the_rule_that_a_wrong_function_breaks(grade_id, bug, rule):
    with pytest.raises(CheckFailed) as caught:
        memstrat.check(grade_id, variants.with_bug((PLAIN | TORCH)[grade_id], bug), seed=3)
    assert caught.value.rule == rule
    assert f"[{rule}]" in str(caught.value)
    assert "went in: " in str(caught.value) and "came out: " in str(caught.value)


@pytest.mark.parametrize(("grade_id", "bug"), [(grade_id, bug) for grade_id, bug, _ in WRONG if grade_id in PLAIN])
def test_random_cases_alone_catch_every_wrong_function(grade_id, bug):
    """A function fitted to the visible cases does not pass: the random ones alone catch each bug."""
    from memstrat.checks.api import call
    from memstrat.checks.judge import judge

    spec, wrong = exercise(grade_id), variants.with_bug(PLAIN[grade_id], bug)
    for seed in range(3):
        cases = random_cases(spec, seed, count=60)
        assert any(judge(spec, case, call(spec, wrong, case.args, case.kwargs)).rule for case in cases)


@pytest.mark.parametrize("grade_id", EXERCISES)
def test_untouched_stub_says_not_done_and_raises_only_when_strict(grade_id, capsys, monkeypatch):
    stub = exercise(grade_id).stub()
    assert not memstrat.check(grade_id, stub)
    assert capsys.readouterr().out == f"not done yet: {grade_id}\n"
    monkeypatch.setenv("MEMSTRAT_STRICT", "1")
    with pytest.raises(CheckFailed, match=f"not done yet: {grade_id}"):
        memstrat.check(grade_id, stub)


def test_check_speaks_chinese(monkeypatch, capsys):
    monkeypatch.setenv("MEMSTRAT_LANGUAGE", "zh")
    memstrat.check("ex_pairs", exercise("ex_pairs").stub())
    assert capsys.readouterr().out == "尚未完成：ex_pairs\n"
    with pytest.raises(CheckFailed, match="符号反了"):
        memstrat.check("ex_pairs", variants.with_bug(variants.pairs, "saving_sign"))


def test_rule_texts_exist_in_both_languages_for_every_rule():
    from memstrat.checks import cases_bytes, rules

    tables = (rules.SHAPE_RULES, rules.VALIDATE_RULES, rules.PAIRS_RULES, rules.HANDOFF_RULES,
              cases_bytes.SAVED_BYTES_RULES, cases_bytes.PACK_UNPACK_RULES, cases_bytes.PEAK_FLOOR_RULES)
    named = {rule for table in tables for rule, _ in table}
    assert named <= set(RULES)
    assert all(text.en and text.zh and text.en != text.zh for text in RULES.values())


def test_check_draws_fresh_cases_unless_seeded(monkeypatch):
    spec = exercise("ex_pairs")
    assert to_plain(random_cases(spec, 1)) != to_plain(random_cases(spec, 2))
    assert same(to_plain(random_cases(spec, 1)), to_plain(random_cases(spec, 1)))
    assert not same(to_plain(random_cases(spec, 1)), to_plain(random_cases(spec, 1, source="hidden")))
    seeds = {memstrat.check("ex_handoff", variants.handoff).seed for _ in range(4)}
    assert len(seeds) > 1


def test_check_catches_an_answer_fitted_to_the_visible_cases():
    spec = exercise("ex_handoff")
    table = {json.dumps([case.args, case.kwargs]): variants.handoff(*case.args, **case.kwargs)
             for case in visible_cases(spec)}

    def fitted(evidence, **kwargs):
        ready = ("ready_for_budget_review", "paired_evidence_complete", ["checkpoint"], "send_to_memory_budget_project")
        return table.get(json.dumps([[evidence], kwargs]),
                         dict(zip(("status", "reason", "eligible_candidates", "next_action"), ready, strict=True)))

    with pytest.raises(CheckFailed) as caught:
        memstrat.check("ex_handoff", fitted, seed=5)
    assert caught.value.case.startswith("random")


def test_check_finds_state_kept_between_calls():
    calls = []

    def counting(evidence, minimum_repeats=3):
        calls.append(1)
        return variants.handoff(evidence, minimum_repeats if len(calls) < 38 else 99)

    with pytest.raises(CheckFailed) as caught:
        memstrat.check("ex_handoff", counting, seed=5)
    assert caught.value.rule == "same_input_same_answer"


@pytest.mark.parametrize(("answer", "rule"), [
    (None, "returns_nothing"), ([], "wrong_type"), ({}, "key_missing"), (object(), "key_missing"),
    ({"is_valid": 1, "issues": [], "candidate_names": []}, "names_in_order"),
])
def test_check_explains_answers_of_the_wrong_shape(answer, rule):
    with pytest.raises(CheckFailed) as caught:
        memstrat.check("ex_validate", lambda *args: answer)
    assert caught.value.rule in (rule, "valid_means_no_issue")


def test_check_reports_an_exception_of_the_function():
    with pytest.raises(CheckFailed, match="KeyError") as caught:
        memstrat.check("ex_validate", lambda baseline, candidates: baseline["no_such_key"])
    assert caught.value.rule == "raised"


def test_check_refuses_unknown_ids_and_what_is_no_function():
    with pytest.raises(UnknownNameError, match="ex_validate"):
        memstrat.check("ex_nothing", variants.pairs)
    with pytest.raises(InputError, match="without calling it"):
        memstrat.check("ex_pairs", {"a": 1})


def test_passing_check_saves_source_that_load_work_brings_back(tmp_path, capsys):
    assert not memstrat.is_done("ex_pairs")
    memstrat.check("ex_pairs", variants.pairs)
    assert "Saved to my_work/ex_pairs.py." in capsys.readouterr().out
    source = (tmp_path / "my_work" / "ex_pairs.py").read_text()
    assert "import math" in source and "def number(" in source and "METRICS = " in source
    assert "def validate(" not in source
    assert memstrat.is_done("ex_pairs")
    loaded = memstrat.load_work("ex_pairs")
    assert loaded is not variants.pairs and memstrat.check("ex_pairs", loaded)


def test_check_says_when_a_source_cannot_be_saved(capsys):
    memstrat.check("ex_handoff", variants.with_bug(variants.handoff, ""))
    assert "Not saved: " in capsys.readouterr().out
    assert not memstrat.is_done("ex_handoff")


def test_load_work_gives_the_reference_with_a_note(tmp_path, capsys):
    reference = exercise("ex_handoff").reference()
    assert memstrat.load_work("ex_handoff") is reference
    assert "the reference is used instead" in capsys.readouterr().out
    (tmp_path / "my_work").mkdir()
    (tmp_path / "my_work" / "ex_handoff.py").write_text("def broken(:\n")
    assert memstrat.load_work("ex_handoff") is reference
    assert "SyntaxError" in capsys.readouterr().out


def test_package_and_plain_checks_load_without_torch():
    code = ("import memstrat, sys; from memstrat.checks import exercise;"
            "memstrat.check('ex_pairs', exercise('ex_pairs').reference()); print('torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert not hasattr(memstrat, "no_such_name")


def test_always_equal_object_equals_nothing():
    class Equal:
        def __eq__(self, other):
            return True

    class Text(str):
        def __eq__(self, other):
            return True

        __hash__ = str.__hash__

    assert to_plain({"status": Equal()}) == {"status": {"__object__": "Equal"}}
    plain = to_plain(Text("oom"))
    assert type(plain) is str and plain != "ok"
    with pytest.raises(CheckFailed):
        memstrat.check("ex_handoff", lambda *args, **kwargs: Equal())
