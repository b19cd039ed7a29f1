"""What a check says, in English and Chinese. Rules say what is asked for, never how to write it."""

from __future__ import annotations

import os
from typing import NamedTuple

LANGUAGES = ("en", "zh")


class Text(NamedTuple):
    """One text in both languages."""

    en: str
    zh: str


def choose_language(language: str | None = None) -> str:
    """The language asked for, else `MEMSTRAT_LANGUAGE`, else English."""
    chosen = language or os.environ.get("MEMSTRAT_LANGUAGE") or "en"
    return "zh" if chosen.lower().startswith("zh") else "en"


def say(text: Text, language: str, **values: object) -> str:
    """The text in that language with its values filled in."""
    return getattr(text, language).format(**values)


NOT_DONE = Text("not done yet: {grade_id}", "尚未完成：{grade_id}")
PASSED = Text("{grade_id}: passed, {count} cases (seed {seed}).",
              "{grade_id}：通过，共 {count} 个用例（随机种子 {seed}）。")
SAVED = Text("Saved to {path}.", "已保存到 {path}。")
NOT_SAVED = Text("Not saved: {reason}", "未保存：{reason}")
FAILED = Text("{grade_id}: a case breaks a rule (case {number} of {count}: {name}; seed {seed}).",
              "{grade_id}：有一个用例违反规则（第 {number} 个，共 {count} 个：{name}；随机种子 {seed}）。")
RULE = Text("rule", "规则")
WENT_IN = Text("went in", "输入")
CAME_OUT = Text("came out", "输出")
DIFFERS = Text("differs at", "差异位置")
WHOLE = Text("the whole answer", "整个返回值")
USES_REFERENCE = Text("note: no saved {grade_id} of yours in {folder}; the reference is used instead.",
                      "注意：{folder} 中没有你保存的 {grade_id}，改用参考实现。")
SAVED_IS_BROKEN = Text("note: {path} does not run ({reason}); the reference is used instead.",
                       "注意：{path} 无法运行（{reason}），改用参考实现。")
NO_SOURCE = Text("the function's source cannot be read here.", "此处无法读取函数源码。")
NOT_ALONE = Text("its source does not work on its own ({reason}). Put what it needs into the same cell.",
                 "源码脱离当前会话后无法运行（{reason}）。请把它依赖的内容放进同一个单元格。")

RULES: dict[str, Text] = {
    "returns_nothing": Text(
        "The function must return its answer; it returned None.",
        "函数必须返回结果，而它返回了 None。"),
    "wrong_type": Text(
        "The answer, or this part of it, must have the type the docstring names.",
        "返回值（或其中这一部分）的类型必须与文档字符串一致。"),
    "key_missing": Text(
        "The answer must hold every key the docstring names.",
        "返回值必须包含文档字符串列出的每一个键。"),
    "other_value": Text(
        "This value is not what the docstring asks for.",
        "这个值不符合文档字符串的要求。"),
    "raised": Text(
        "The function must answer this input; it raised {error}.",
        "函数必须能处理这组输入，而它抛出了 {error}。"),
    "input_mutated": Text(
        "The input must not be changed; the function changed it.",
        "不得修改输入，而函数修改了它。"),
    "same_input_same_answer": Text(
        "The same input must give the same answer on every call; keep nothing between calls.",
        "相同输入每次调用都必须得到相同结果；不要在调用之间保留状态。"),
    "not_finished": Text(
        "The exercise still raises NotImplementedError.",
        "练习仍然抛出 NotImplementedError。"),
    # ex_validate
    "duplicate_missed": Text(
        "A name that an earlier candidate has is a duplicate, and an issue.",
        "与前面候选同名即为重复，必须列为问题。"),
    "duplicate_invented": Text(
        "Only the second and later rows of one name are duplicates.",
        "同名行中只有第二次及以后出现的才算重复。"),
    "missing_name_missed": Text(
        "A name that is no non-empty string is `candidate:missing_name`.",
        "名称不是非空字符串时，记为 `candidate:missing_name`。"),
    "nothing_after_missing_name": Text(
        "Nothing else is checked for a candidate without a name.",
        "没有名称的候选不再做其他检查。"),
    "missing_key_is_mismatch": Text(
        "A key missing on either side is a mismatch, also when it is missing on both.",
        "任何一侧缺少该键都算不匹配，两侧都缺也一样。"),
    "workload_ignored": Text(
        "A candidate of another workload must be reported.",
        "工作负载不同的候选必须报告。"),
    "hardware_ignored": Text(
        "A candidate measured on other hardware must be reported.",
        "在其他硬件上测得的候选必须报告。"),
    "repeats_ignored": Text(
        "A candidate with another repeat count must be reported.",
        "重复次数不同的候选必须报告。"),
    "mismatch_invented": Text(
        "Equal values on both sides are no mismatch.",
        "两侧取值相同不算不匹配。"),
    "path_exactly_true": Text(
        "A path is verified only if the field is exactly True; words and numbers are no proof.",
        "只有该字段恰为 True 才算路径已验证；文字或数字都不是证据。"),
    "path_ignored": Text(
        "A run whose path is not verified is no evidence: path ignored.",
        "路径未验证的运行不能作为证据：忽略了路径。"),
    "failure_rows_keep_no_path": Text(
        "The path is not asked of oom and failed rows; they stay as failure evidence.",
        "oom 和 failed 的行不要求路径，它们作为失败证据保留。"),
    "bool_is_no_number": Text(
        "A bool is not a number.",
        "布尔值不是数值。"),
    "not_finite_is_invalid": Text(
        "A metric that is missing, None, NaN, infinite or text is not a finite number.",
        "缺失、None、NaN、无穷大或文本都不是有限数值。"),
    "judges_candidate_gains": Text(
        "Only the baseline's metrics are judged here; this function never looks at gains.",
        "这里只检查基线的指标；本函数不评判收益。"),
    "unknown_issue": Text(
        "An issue must be one of the strings the docstring lists, and have a reason.",
        "问题只能是文档字符串列出的字符串，并且确有依据。"),
    "issue_order": Text(
        "Issues come candidate by candidate, then in the docstring's order; the baseline's comes last.",
        "问题按候选顺序排列，同一候选内按文档字符串的顺序；基线的问题排在最后。"),
    "names_keep_duplicates": Text(
        "`candidate_names` holds every named candidate, duplicates included.",
        "`candidate_names` 包含所有有名称的候选，重复的也要保留。"),
    "names_in_order": Text(
        "Names come in the order of the rows, and only names that exist.",
        "名称按行的顺序排列，且只包含确实存在的名称。"),
    "valid_means_no_issue": Text(
        "`is_valid` is True exactly if there is no issue.",
        "当且仅当没有问题时，`is_valid` 为 True。"),
    # ex_pairs
    "one_row_per_candidate": Text(
        "Every candidate gets one comparison; none is dropped.",
        "每个候选对应一行比较结果，不得丢弃。"),
    "rows_in_order": Text(
        "Comparisons come in the order of the candidates.",
        "比较结果按候选的顺序排列。"),
    "failure_is_no_saving": Text(
        "A row that is oom or failed is not a saving: name and status only, whatever its figures say.",
        "oom 或 failed 的行不是节省：无论带有什么数字，只保留名称和状态。"),
    "failure_rows_stay": Text(
        "oom and failed rows keep their status.",
        "oom 和 failed 的行保持原状态。"),
    "baseline_must_be_usable": Text(
        "With a baseline that is not ok, not finite or without throughput, nothing is comparable.",
        "基线状态不是 ok、指标不是有限数值或吞吐量不为正时，任何候选都不可比较。"),
    "unknown_status_is_invalid": Text(
        "Any status other than ok, oom and failed makes the row invalid.",
        "除 ok、oom、failed 以外的状态一律为 invalid。"),
    "missing_status_reads_ok": Text(
        "A missing status reads as ok.",
        "缺少状态时按 ok 处理。"),
    "sound_row_is_comparable": Text(
        "A row that is ok with finite metrics is comparable; path and repeats are judged later.",
        "状态为 ok 且指标为有限数值的行可比较；路径和重复次数稍后再判断。"),
    "status_word": Text(
        "The status must be one of the docstring's words for this case.",
        "状态必须是文档字符串为这种情况规定的词。"),
    "saving_sign_swapped": Text(
        "`memory_saving_mb` is baseline minus candidate; the sign is swapped.",
        "`memory_saving_mb` 等于基线减候选；符号反了。"),
    "saving_is_difference": Text(
        "`memory_saving_mb` is baseline minus candidate peak, in MiB, not rounded.",
        "`memory_saving_mb` 等于基线峰值减候选峰值，单位 MiB，不取整。"),
    "ratio_inverted": Text(
        "`throughput_ratio` is candidate over baseline; it is inverted.",
        "`throughput_ratio` 等于候选除以基线；分子分母反了。"),
    "ratio_is_candidate_over_baseline": Text(
        "`throughput_ratio` is candidate over baseline samples per second, not rounded.",
        "`throughput_ratio` 等于候选与基线每秒样本数之比，不取整。"),
    "quality_sign_swapped": Text(
        "`quality_delta` is candidate minus baseline loss; the sign is swapped.",
        "`quality_delta` 等于候选损失减基线损失；符号反了。"),
    "quality_is_difference": Text(
        "`quality_delta` is candidate minus baseline eval loss, not rounded.",
        "`quality_delta` 等于候选评估损失减基线评估损失，不取整。"),
    "repeats_of_the_candidate": Text(
        "`repeat_count` is the candidate's own.",
        "`repeat_count` 取候选自身的值。"),
    "bare_failure_rows": Text(
        "A row that is not comparable holds a name and a status, nothing else.",
        "不可比较的行只包含名称和状态。"),
    "counts_by_status": Text(
        "Each count is the number of comparisons with that status.",
        "每个计数等于对应状态的比较结果行数。"),
    "baseline_row_kept": Text(
        "`baseline` is a copy of the whole baseline row.",
        "`baseline` 是整行基线数据的副本。"),
    # ex_handoff
    "failure_rows_have_no_repeats": Text(
        "Only the baseline and comparable runs must reach the minimum; failure rows have no repeats.",
        "只有基线和可比较的运行需要达到最少重复次数；失败行没有重复次数。"),
    "minimum_is_an_argument": Text(
        "The minimum is the argument `minimum_repeats`, not a fixed 3.",
        "最少重复次数由参数 `minimum_repeats` 给出，不是固定的 3。"),
    "threshold_off_by_one": Text(
        "Exactly the minimum is enough, one fewer is not: the threshold is off by one.",
        "恰好达到最少次数即可，少一次就不够：阈值差了一。"),
    "repeats_before_paths": Text(
        "Too few repeats is decided before verified paths.",
        "先判断重复次数，再判断路径是否验证。"),
    "baseline_repeats_count_too": Text(
        "The baseline needs the minimum of repeats too.",
        "基线同样需要达到最少重复次数。"),
    "every_comparable_needs_repeats": Text(
        "Every comparable run needs the minimum of repeats.",
        "每个可比较的运行都必须达到最少重复次数。"),
    "rerun_only_for_repeats": Text(
        "A rerun is asked for only where repeats are too few.",
        "只有重复次数不足时才要求重跑。"),
    "no_candidate_without_path": Text(
        "Without a comparable run on a verified path there is no valid candidate.",
        "没有路径已验证的可比较运行，就没有有效候选。"),
    "hands_over_none": Text(
        "No names are handed over unless the evidence is ready.",
        "证据未就绪时不得交出任何名称。"),
    "failure_rows_are_no_candidates": Text(
        "oom, failed and invalid rows are never handed over.",
        "oom、failed、invalid 的行不得交出。"),
    "hands_over_all": Text(
        "All comparable, verified candidates are handed over; the budget project picks one.",
        "所有可比较且路径已验证的候选都要交出；由预算项目挑选。"),
    "reason_word": Text(
        "Reason and next action must be the docstring's words for this status.",
        "原因和下一步必须是文档字符串为该状态规定的词。"),
    # ex_saved_bytes
    "parameters_not_counted": Text(
        "Parameters are in memory anyway and are not counted.",
        "参数本来就在内存中，不计入。"),
    "storage_counted_once": Text(
        "A storage counts once: ReLU's output is the next layer's input.",
        "同一块存储只计一次：ReLU 的输出就是下一层的输入。"),
    "gelu_keeps_its_input": Text(
        "GELU keeps its input; the next Linear keeps GELU's output as well.",
        "GELU 保存自己的输入；下一个 Linear 还保存 GELU 的输出。"),
    "element_size_ignored": Text(
        "The element size is an argument; not every element has the bytes assumed here.",
        "元素大小由参数给出；并非每个元素都是这里假设的字节数。"),
    "batch_ignored": Text(
        "Every row of the batch is kept.",
        "批次中的每一行都会保存。"),
    "input_is_kept": Text(
        "The first Linear keeps the network's input.",
        "第一个 Linear 保存网络的输入。"),
    "loss_keeps_the_output": Text(
        "`pow` in the loss keeps the network's output.",
        "损失中的 `pow` 保存网络的输出。"),
    "hidden_layers_kept": Text(
        "Each hidden layer's tensors are kept.",
        "每个隐藏层的张量都会保存。"),
    # ex_pack_unpack
    "pair_of_callables": Text(
        "The function returns a pair of callables, pack and unpack.",
        "函数返回一对可调用对象：pack 和 unpack。"),
    "unpack_gives_tensors": Text(
        "unpack must return a tensor.",
        "unpack 必须返回张量。"),
    "real_copy_on_host": Text(
        "What pack keeps must be a real copy in host memory, also for a tensor on the CPU.",
        "pack 保存的必须是主机内存中的真实副本，对 CPU 张量也一样。"),
    "shape_restored": Text(
        "unpack must restore the shape.",
        "unpack 必须恢复形状。"),
    "dtype_restored": Text(
        "unpack must restore the dtype.",
        "unpack 必须恢复 dtype。"),
    "device_restored": Text(
        "unpack must bring the tensor back to its device.",
        "unpack 必须把张量搬回原设备。"),
    "values_restored": Text(
        "unpack must restore exactly the values that were packed, each tensor its own.",
        "unpack 必须精确恢复打包时的数值，且各张量互不混淆。"),
    "unpack_more_than_once": Text(
        "unpack may be called more than once, in any order.",
        "unpack 可以多次、以任意顺序调用。"),
    "gradients_unchanged": Text(
        "A backward pass under the hooks must give the same gradients, each pack unpacked once.",
        "在钩子下反向传播必须得到相同的梯度，每次打包对应一次解包。"),
    # ex_peak_floor
    "parameters_of_all_tensors": Text(
        "`parameters_bytes` is all elements times the element size.",
        "`parameters_bytes` 等于全部元素数乘以元素大小。"),
    "gradients_as_parameters": Text(
        "Every parameter has a gradient of its size.",
        "每个参数都有同样大小的梯度。"),
    "sgd_keeps_nothing": Text(
        "SGD without momentum keeps no moments and needs no temporaries.",
        "不带动量的 SGD 不保存矩，也不需要临时张量。"),
    "two_moments": Text(
        "AdamW keeps two moments per parameter.",
        "AdamW 为每个参数保存两个矩。"),
    "foreach_copies_all": Text(
        "With foreach, AdamW's temporaries are one more copy of all parameters.",
        "使用 foreach 时，AdamW 的临时张量是全部参数的又一份副本。"),
    "largest_tensor_twice": Text(
        "Without foreach, AdamW's temporaries are twice the largest tensor.",
        "不使用 foreach 时，AdamW 的临时张量是最大张量的两倍。"),
    "floor_is_the_sum": Text(
        "`floor_bytes` is the sum of the four parts.",
        "`floor_bytes` 等于四部分之和。"),
    # while grading
    "timed_out": Text(
        "The call took longer than {limit} s.",
        "调用超过了 {limit} 秒。"),
    "process_ended": Text(
        "The process ended during the call ({error}).",
        "调用期间进程结束（{error}）。"),
    "too_much_output": Text(
        "The answer is larger than what is read.",
        "返回值超出读取上限。"),
}
