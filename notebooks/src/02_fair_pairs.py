# %% [markdown] id="title" lang="en"
# # When may two runs be compared, and what did the strategy change?
#
# {badges}
#
# **You will know** which facts two runs must share before you may subtract one from the other; how to keep a run that failed without letting it count as a gain; and when evidence is complete enough to hand over.
#
# **Needs** about 45 minutes. Any machine with Python: no GPU, no torch, no download.
#
# The rhythm of the series: *predict*, then *run*, then *read*. A prediction that turns out wrong is the cell you learn most from.
# %% [markdown] id="title" lang="zh"
# # 两次运行什么时候才能比？策略到底改变了什么？
#
# {badges}
#
# **学完你会知道**：两次运行必须在哪些事实上一致，才可以相减；失败的运行怎样如实保留，又不会被当成收益；证据完整到什么程度，才可以交出去。
#
# **需要**：约 45 分钟。有 Python 的机器就行：不需要 GPU，不需要 torch，也不用下载任何东西。
#
# 整个系列的节奏是：先*预测*，再*运行*，最后*解读*。猜错的那个单元，往往就是收获最大的那个。
# %% id="first_cell" kind="first"
# %% id="imports"
import json
import math

import memstrat
from memstrat import evidence, widgets

# %% [markdown] id="subtraction" lang="en"
# ## A subtraction is always possible
#
# Below are two measured rows, `baseline` and `checkpoint`. The second peaks 2,800 MiB lower.
#
# **Predict.** Did activation checkpointing save 2,800 MiB? Name one fact, visible in the rows, that would make you doubt it. Then run the cell.
# %% [markdown] id="subtraction" lang="zh"
# ## 减法永远算得出来
#
# 下面是两行测量结果：`baseline` 和 `checkpoint`，后者的峰值低了 2,800 MiB。
#
# **预测**：这 2,800 MiB 是激活检查点（activation checkpointing，也叫梯度检查点）省下来的吗？从这两行里找一个让你起疑的事实，然后再运行。
# %% id="subtraction_run" compare=true
baseline = {"name": "baseline", "status": "ok", "workload_id": "train-b2-s1024", "hardware_id": "gpu-a",
            "repeat_count": 5, "execution_path_verified": True,
            "peak_memory_mb": 11000.0, "samples_per_s": 8.0, "eval_loss": 1.06}
shorter = {**baseline, "name": "checkpoint", "workload_id": "train-b2-s768",
           "peak_memory_mb": 8200.0, "samples_per_s": 11.2, "eval_loss": 1.08}

print("difference:", baseline["peak_memory_mb"] - shorter["peak_memory_mb"], "MiB")
for key in baseline:
    if baseline[key] != shorter[key]:
        print(f"{key:24} {baseline[key]!s:16} {shorter[key]}")

# %% [markdown] id="subtraction_read" lang="en"
# **Read.** The candidate ran at sequence length 768, the baseline at 1024. The lower peak belongs to the shorter sequence, and so does the surprising *higher* throughput: recomputation never makes a step faster.
#
# Nothing in the arithmetic objected. Whether two runs may be compared has to be asked first, and separately from any gain. That is why this notebook has three functions and not one:
#
# | exercise | given | done when |
# |---|---|---|
# | `ex_validate` | a baseline row and candidate rows | every reason not to compare them is listed, in a fixed order |
# | `ex_pairs` | rows that passed | each candidate is a comparison, or a kept failure, never a silent gap |
# | `ex_handoff` | the comparisons | one status says whether they may go to the budget project |
# %% [markdown] id="subtraction_read" lang="zh"
# **解读**：候选的序列长度是 768，基线是 1024。峰值低是因为序列短；吞吐反而*更高*，原因也一样。重算从来不会让一步变快。
#
# 算式本身不会提出任何异议。“能不能比”必须先问，而且要和“有没有收益”分开问。所以这里要写三个函数，而不是一个：
#
# | 练习 | 给定 | 完成的标准 |
# |---|---|---|
# | `ex_validate` | 一行基线和若干行候选 | 按固定顺序列出所有不能比较的理由 |
# | `ex_pairs` | 通过校验的行 | 每个候选要么成为一次对照，要么作为失败保留，不会无声消失 |
# | `ex_handoff` | 这些对照 | 用一个状态说明能不能交给预算项目 |
# %% [markdown] id="metrics" lang="en"
# ## What the figures in a row mean
#
# | metric | meaning | what it decides |
# |---|---|---|
# | `peak_memory_mb` (peak allocated) | most bytes of live tensors during the timed steps, in MiB | the memory cap, and the saving |
# | `peak_reserved_mb` (peak reserved) | what the caching allocator took from the driver: live tensors plus cache and fragmentation | whether the process fits beside others; never the saving |
# | `samples_per_s` | micro-batch × 1000 / median step time | the throughput floor and ratio: the price |
# | `eval_loss` | loss on inputs that were not trained on | the quality floor: still the same training? |
# | `execution_path_verified` | counts of recomputed regions and packed tensors match the strategy's rule | whether the row is evidence at all |
# %% [markdown] id="metrics" lang="zh"
# ## 一行里的数字是什么意思
#
# | 指标 | 含义 | 用来决定什么 |
# |---|---|---|
# | `peak_memory_mb`（已分配峰值） | 计时步内存活张量字节数的最大值，单位 MiB | 显存上限，以及节省量 |
# | `peak_reserved_mb`（预留峰值） | 缓存分配器向驱动要走的总量：存活张量，加上缓存和碎片 | 这个进程能不能和别的进程共存；不用来算节省量 |
# | `samples_per_s` | micro-batch × 1000 / 单步时间中位数 | 吞吐下限和吞吐比，也就是代价 |
# | `eval_loss` | 在没有训练过的输入上的损失 | 质量下限：训练还是不是原来那个训练 |
# | `execution_path_verified` | 重算区域数、打包张量数符合该策略的规则 | 这一行算不算证据 |
# %% [markdown] id="validate_intro" lang="en"
# ## Exercise 1: may these rows be compared?
#
# `validate_strategy_experiment(baseline, candidates)` judges comparability, never gains.
#
# | in | out |
# |---|---|
# | baseline row, list of candidate rows | `is_valid`: True if there is no issue |
# | | `candidate_names`: every named candidate, in order, duplicates included |
# | | `issues`: strings, candidate by candidate, in the docstring's order |
#
# **Example.** A candidate named `checkpoint` that ran on `gpu-b` while the baseline ran on `gpu-a` gives `["checkpoint:hardware_id_mismatch"]` and `is_valid` False.
#
# One thought before you type: a run that went out of memory never finished its probe step, so it cannot show its path. Should it be called unverified?
# %% [markdown] id="validate_intro" lang="zh"
# ## 练习 1：这些行能比吗？
#
# `validate_strategy_experiment(baseline, candidates)` 只判断可比性，不评价收益。
#
# | 输入 | 输出 |
# |---|---|
# | 基线行、候选行的列表 | `is_valid`：没有任何问题时为 True |
# | | `candidate_names`：所有有名字的候选，保持顺序，重复的也算 |
# | | `issues`：字符串列表，逐个候选，顺序见 docstring |
#
# **例子**：名为 `checkpoint` 的候选跑在 `gpu-b` 上，而基线跑在 `gpu-a` 上，结果是 `["checkpoint:hardware_id_mismatch"]`，`is_valid` 为 False。
#
# 动手前先想一个问题：显存溢出的运行根本没走到探测步，自然拿不出路径证据。应该说它“路径未验证”吗？
# %% [markdown] id="validate_hints" lang="en"
# <details><summary>Hint 1: a nudge</summary>
#
# Walk through the candidates once and append to one list as you go; the order of the issues then takes care of itself. What do you have to remember from earlier candidates?
# </details>
# <details><summary>Hint 2: an approach</summary>
#
# Settle the name first, since without one nothing else is checked. Then three keys in a loop: a mismatch is "missing here, missing there, or different". Then the path, by identity with True (the string "true" and the number 1 are no proof), unless the status excuses it. The baseline's three metrics come last; remember that in Python a bool is an int.
# </details>
# %% [markdown] id="validate_hints" lang="zh"
# <details><summary>提示 1：点一下</summary>
#
# 候选只遍历一遍，边走边往同一个列表里追加，问题的顺序自然就对了。前面的候选里，有什么是后面需要记住的？
# </details>
# <details><summary>提示 2：思路</summary>
#
# 先处理名字，没有名字就什么都不用再查。然后循环检查三个键：“这边没有、那边没有、两边不同”都算不一致。接着看路径，必须严格等于 True（字符串 "true"、数字 1 都不算证据），除非它的状态可以豁免。最后检查基线的三个指标；别忘了在 Python 里 bool 也是 int。
# </details>
# %% [markdown] id="validate_stop" lang="en" only="solution"
# ---
# **Stop.** The solution of exercise 1 follows. Have you had a passing or failing check of your own yet?
#
# ---
# %% [markdown] id="validate_stop" lang="zh" only="solution"
# ---
# **停一下。** 下面就是练习 1 的答案。你自己的版本跑过检查了吗，不管过没过？
#
# ---
# %% id="ex_validate" kind="exercise"
def validate_strategy_experiment(baseline, candidates):
    """
    [en] {contract}
    [zh] 判断这些候选到底能不能和基线比较。
    [zh]
    [zh] 只判断可比性，不评价收益：不看预算，不算节省量，也不算比值。
    [zh]
    [zh] 参数：
    [zh]     baseline：一行，含 `workload_id`、`hardware_id`、`repeat_count`、`peak_memory_mb`（MiB）、
    [zh]         `samples_per_s` 和 `eval_loss`。
    [zh]     candidates：若干行，键同上，另有 `name`、`status`、`execution_path_verified`。
    [zh]
    [zh] 返回：
    [zh]     `is_valid`：没有任何问题时为 True。
    [zh]     `candidate_names`：所有有名字的候选，保持顺序，重复的也算。
    [zh]     `issues`：字符串列表，按给定顺序逐个候选检查，每个候选内部按下面的顺序：
    [zh]
    [zh]     1. 名字不是非空字符串：`candidate:missing_name`；这个候选不再做其他检查。
    [zh]     2. 前面已有同名候选：`<name>:duplicate_name`。
    [zh]     3. 与基线不同：`<name>:workload_id_mismatch`、`<name>:hardware_id_mismatch`、
    [zh]        `<name>:repeat_count_mismatch`；任何一边缺这个键也算不一致。
    [zh]     4. `execution_path_verified` 不严格等于 True：`<name>:execution_path_unverified`。
    [zh]        状态为 `oom` 或 `failed` 的行不查这一项：它们作为失败证据保留。
    [zh]
    [zh]     最后，基线的 `peak_memory_mb`、`samples_per_s` 或 `eval_loss` 不是有限数时，
    [zh]     加上 `baseline:invalid_metrics`。bool 不是数。
    [zh]
    [zh] 古怪的输入绝不会被当成有效的一对。既不是非空字符串、也不是有限数的 id，以及不是有限数的
    [zh] `repeat_count`，都视为缺失。不是 dict 的行没有名字。candidates 既不是 list 也不是 tuple 时，
    [zh] 视为一个没有名字的行。输入不会被修改。
    """
    ### BEGIN SOLUTION
    def number(value):
        try:
            return not isinstance(value, bool) and math.isfinite(value)
        except (TypeError, OverflowError):
            return False

    def same(key, ours, theirs):
        both_text = isinstance(ours, str) and isinstance(theirs, str) and ours and key != "repeat_count"
        return (both_text or (number(ours) and number(theirs))) and ours == theirs

    base = baseline if isinstance(baseline, dict) else {}
    names, issues = [], []
    for row in candidates if isinstance(candidates, (list, tuple)) else [None]:
        name = row.get("name") if isinstance(row, dict) else None
        if not isinstance(name, str) or not name:
            issues.append("candidate:missing_name")
            continue
        if name in names:
            issues.append(f"{name}:duplicate_name")
        names.append(name)
        for key in ("workload_id", "hardware_id", "repeat_count"):
            if not same(key, base.get(key), row.get(key)):
                issues.append(f"{name}:{key}_mismatch")
        if row.get("status", "ok") not in ("oom", "failed") and row.get("execution_path_verified") is not True:
            issues.append(f"{name}:execution_path_unverified")
    if not all(number(base.get(key)) for key in ("peak_memory_mb", "samples_per_s", "eval_loss")):
        issues.append("baseline:invalid_metrics")
    return {"is_valid": not issues, "issues": issues, "candidate_names": names}
    ### END SOLUTION


# %% id="test_ex_validate" kind="check" points=4
memstrat.check("ex_validate", validate_strategy_experiment)

# %% [markdown] id="validate_why" lang="en" only="solution"
# **Mechanism.** One pass, one list: the order of the issues is the order of the walk. `same` says yes only if both sides state the key, so "unknown equals unknown" cannot slip through.
#
# **Invariant.** No input whatsoever makes `is_valid` True while one candidate's workload, machine, repeats or path is in doubt. Equally, a failed run is never accused of lacking a path it could not have had.
#
# **Test evidence.** The check runs fixed cases (one rule broken at a time) and random ones (several rules broken in several rows), and compares the whole list, so a right verdict with wrong reasons does not pass.
# %% [markdown] id="validate_why" lang="zh" only="solution"
# **机制**：一趟遍历，一个列表；问题的顺序就是遍历的顺序。`same` 只有在两边都写明了这个键时才可能返回真，“未知等于未知”混不过去。
#
# **不变量**：只要有一个候选的任务、机器、重复次数或路径存疑，任何输入都不能让 `is_valid` 为 True。反过来，失败的运行也不会因为拿不出它本来就不可能有的路径而被指责。
#
# **测试证据**：检查里有固定用例（一次只破坏一条规则），也有随机用例（多行、多条规则一起破坏），比较的是完整的列表；结论对、理由错，照样过不了。
# %% [markdown] id="pairs_intro" lang="en"
# ## Exercise 2: one comparison per candidate
#
# `build_strategy_pair_evidence(baseline, candidates)` pairs numbers. It sees no budget.
#
# | in | out |
# |---|---|
# | a candidate with status `ok` (or none given) and finite metrics | `comparable`, with saving, ratio and quality delta |
# | status `oom` or `failed` | `{"name", "status"}`: kept, without any figure |
# | any other status, or a metric that is no finite number | `{"name", "status": "invalid"}` |
# | the baseline itself unusable | no candidate is comparable |
#
# **Example.** Baseline 11,000 MiB at 8.0 samples/s and loss 1.06; checkpoint 8,200, 6.8, 1.08: saving 2800.0, ratio 0.85, quality delta 0.02.
#
# **Predict** the sign of each of the three figures for a strategy that helps.
# %% [markdown] id="pairs_intro" lang="zh"
# ## 练习 2：每个候选一次对照
#
# `build_strategy_pair_evidence(baseline, candidates)` 把数字配成对，不看预算。
#
# | 输入 | 输出 |
# |---|---|
# | 状态为 `ok`（或没写状态）且指标都是有限数的候选 | `comparable`，带节省量、吞吐比和质量差 |
# | 状态为 `oom` 或 `failed` | `{"name", "status"}`：保留下来，不带任何数字 |
# | 其他状态，或有指标不是有限数 | `{"name", "status": "invalid"}` |
# | 基线本身不可用 | 没有任何候选是 comparable |
#
# **例子**：基线 11,000 MiB、8.0 samples/s、损失 1.06；checkpoint 为 8,200、6.8、1.08。节省量 2800.0，吞吐比 0.85，质量差 0.02。
#
# **预测**：对一个有用的策略，这三个数各是什么符号？
# %% [markdown] id="pairs_hints" lang="en"
# <details><summary>Hint 1: a nudge</summary>
#
# An out-of-memory row may carry stale figures. If your code reads its peak before its status, sooner or later a crash becomes the best saving in the table.
# </details>
# <details><summary>Hint 2: an approach</summary>
#
# Decide first what the row *is*, from its status and its numbers, in the table's order; compute last, for what is left. Judge the baseline once, before the loop: status, three metrics, throughput above zero. Count the statuses at the end, from the list you are about to return.
# </details>
# %% [markdown] id="pairs_hints" lang="zh"
# <details><summary>提示 1：点一下</summary>
#
# 显存溢出的行里可能残留着旧数字。如果先读峰值、后看状态，迟早有一次崩溃会变成表里“省得最多”的那一行。
# </details>
# <details><summary>提示 2：思路</summary>
#
# 先根据状态和数字判断这一行*是什么*，顺序照表来；剩下的才做计算。基线只判断一次，放在循环之前：状态、三个指标、吞吐大于零。计数放在最后，从即将返回的列表里数。
# </details>
# %% [markdown] id="pairs_stop" lang="en" only="solution"
# ---
# **Stop.** The solution of exercise 2 follows.
#
# ---
# %% [markdown] id="pairs_stop" lang="zh" only="solution"
# ---
# **停一下。** 下面是练习 2 的答案。
#
# ---
# %% id="ex_pairs" kind="exercise"
def build_strategy_pair_evidence(baseline, candidates):
    """
    [en] {contract}
    [zh] 把通过校验的实验变成每个候选一次对照（内存单位 MiB）。
    [zh]
    [zh] 不看预算，也不重复校验：身份和重名在此之前已经查过。
    [zh]
    [zh] 参数：
    [zh]     baseline：同 `validate_strategy_experiment`；没有 `status` 键时视为 `ok`。
    [zh]     candidates：同 `validate_strategy_experiment`；没有 `status` 键时视为 `ok`。
    [zh]
    [zh] 返回：
    [zh]     `baseline`：基线行的副本。
    [zh]     `comparisons`：每个候选一个 dict，保持顺序：
    [zh]
    [zh]     * 状态为 `oom` 或 `failed`：`{"name", "status"}`，不管它的指标写了什么。
    [zh]     * 状态不是 `ok`，或 `peak_memory_mb`、`samples_per_s`、`eval_loss` 中有的不是有限数：
    [zh]       `{"name", "status": "invalid"}`。bool 不是数。
    [zh]     * 其余：`name`、`status`（值为 `comparable`）、`repeat_count`、
    [zh]       `execution_path_verified`（bool）、`candidate_peak_memory_mb`、
    [zh]       `candidate_samples_per_s`、`candidate_eval_loss`，以及
    [zh]       `memory_saving_mb` = 基线峰值 - 候选峰值，
    [zh]       `throughput_ratio` = 候选吞吐 / 基线吞吐，
    [zh]       `quality_delta` = 候选 eval loss - 基线 eval loss。
    [zh]
    [zh]     `comparable_count`、`oom_count`、`failed_count`、`invalid_count`：各有多少个。
    [zh]
    [zh]     基线状态不是 `ok`、有指标不是有限数、或吞吐 <= 0 时，没有候选可比：
    [zh]     除 oom 和 failed 外全部是 `invalid`。
    [zh]
    [zh] 古怪的输入绝不会变成收益。写了但不是 `ok` 的状态（包括 None）、没有名字的行、不是 dict 的行、
    [zh] 溢出的差或比，都是 `invalid`；candidates 既不是 list 也不是 tuple 时，视为一个这样的行。
    [zh] 不是非负整数的 `repeat_count` 视为 0。输出的每个数都是有限数；
    [zh] `baseline` 副本里不是有限数的，用 None 代替。输入不会被修改。
    """
    ### BEGIN SOLUTION
    metrics = ("peak_memory_mb", "samples_per_s", "eval_loss")

    def number(value):
        try:
            return not isinstance(value, bool) and math.isfinite(value)
        except (TypeError, OverflowError):
            return False

    def measured(row):
        return row.get("status", "ok") == "ok" and all(number(row.get(key)) for key in metrics)

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return value if value is None or isinstance(value, (str, bool)) or number(value) else None

    def compare(row):
        row = row if isinstance(row, dict) else {}
        name = row.get("name") if isinstance(row.get("name"), str) and row.get("name") else None
        if row.get("status") in ("oom", "failed"):
            return {"name": name, "status": row["status"]}
        if name is None or not usable or not measured(row):
            return {"name": name, "status": "invalid"}
        gains = {"memory_saving_mb": base["peak_memory_mb"] - row["peak_memory_mb"],
                 "throughput_ratio": row["samples_per_s"] / base["samples_per_s"],
                 "quality_delta": row["eval_loss"] - base["eval_loss"]}
        if not all(map(number, gains.values())):
            return {"name": name, "status": "invalid"}
        repeats = row.get("repeat_count")
        whole = number(repeats) and repeats >= 0 and repeats == int(repeats)
        return {"name": name, "status": "comparable", "repeat_count": int(repeats) if whole else 0,
                "execution_path_verified": row.get("execution_path_verified") is True,
                **{f"candidate_{key}": row[key] for key in metrics}, **gains}

    base = baseline if isinstance(baseline, dict) else {}
    usable = measured(base) and base["samples_per_s"] > 0
    rows = candidates if isinstance(candidates, (list, tuple)) else [None]
    comparisons = [compare(row) for row in rows]
    statuses = [item["status"] for item in comparisons]
    counts = {f"{word}_count": statuses.count(word) for word in ("comparable", "oom", "failed", "invalid")}
    return {"baseline": plain(base), "comparisons": comparisons, **counts}
    ### END SOLUTION


# %% id="test_ex_pairs" kind="check" points=4
memstrat.check("ex_pairs", build_strategy_pair_evidence)

# %% [markdown] id="pairs_why" lang="en" only="solution"
# **Mechanism.** A row is classified before any of its numbers is used. Saving is baseline minus candidate, so a gain is positive; ratio and delta put the candidate first, so a ratio below 1 and a positive delta are the price.
#
# **Invariant.** The comparisons are as many as the candidates and in their order. Only status `ok` with three finite metrics on both sides ever yields a number.
#
# **Test evidence.** Swap one sign and the known answer (2800.0, 0.85, 0.02) fails; give an `oom` row tempting metrics and the count of comparable rows must not move; a `True` for a loss must be `invalid`.
# %% [markdown] id="pairs_why" lang="zh" only="solution"
# **机制**：先给一行定性，再用它的数字。节省量是基线减候选，所以收益为正；吞吐比和质量差把候选放在前面，小于 1 的比值和大于 0 的差就是代价。
#
# **不变量**：对照的个数和顺序与候选完全一致。只有两边都是 `ok`、三个指标都是有限数，才会算出数来。
#
# **测试证据**：任何一个符号写反，已知答案（2800.0、0.85、0.02）就对不上；给 `oom` 行塞进诱人的指标，comparable 的计数也不许变；把损失写成 `True`，必须得到 `invalid`。
# %% [markdown] id="handoff_intro" lang="en"
# ## Exercise 3: is it enough to hand over?
#
# `decide_strategy_handoff(evidence, minimum_repeats=3)` hands over candidates. It picks none: the budget project does.
#
# | first match | status | reason | next action |
# |---|---|---|---|
# | too few repeats anywhere | `rerun_required` | `insufficient_repeats` | `repeat_paired_runs` |
# | no comparable run with a verified path | `no_valid_candidate` | `no_comparable_strategy` | `repair_strategy_execution` |
# | otherwise | `ready_for_budget_review` | `paired_evidence_complete` | `send_to_memory_budget_project` |
#
# **Predict.** The evidence holds one failed candidate and nothing else; the baseline has 5 repeats. Which row of the table is it?
# %% [markdown] id="handoff_intro" lang="zh"
# ## 练习 3：够不够交出去？
#
# `decide_strategy_handoff(evidence, minimum_repeats=3)` 只交出候选，不替预算项目做选择。
#
# | 第一条命中 | status | reason | next_action |
# |---|---|---|---|
# | 有任何一处重复次数不足 | `rerun_required` | `insufficient_repeats` | `repeat_paired_runs` |
# | 没有路径已验证的可比运行 | `no_valid_candidate` | `no_comparable_strategy` | `repair_strategy_execution` |
# | 其余情况 | `ready_for_budget_review` | `paired_evidence_complete` | `send_to_memory_budget_project` |
#
# **预测**：证据里只有一个失败的候选，基线重复了 5 次。对应表里哪一行？
# %% [markdown] id="handoff_hints" lang="en"
# <details><summary>Hint 1: a nudge</summary>
#
# Exactly the minimum is enough. And ask *whose* repeats count: a failed row has no comparison that could be repeated into significance.
# </details>
# <details><summary>Hint 2: an approach</summary>
#
# Keep the comparable rows. Check the repeats of the baseline and of these rows. Of them, keep the names whose path is exactly True. An empty list is the second row of the table, anything else the third.
# </details>
# %% [markdown] id="handoff_hints" lang="zh"
# <details><summary>提示 1：点一下</summary>
#
# 刚好等于最小值就够了。还要想清楚看*谁*的重复次数：失败的行根本没有对照，再重复也说明不了什么。
# </details>
# <details><summary>提示 2：思路</summary>
#
# 先留下 comparable 的行。检查基线和这些行的重复次数。再从中留下路径严格等于 True 的名字。列表为空就是表里的第二行，否则是第三行。
# </details>
# %% [markdown] id="handoff_stop" lang="en" only="solution"
# ---
# **Stop.** The solution of exercise 3 follows.
#
# ---
# %% [markdown] id="handoff_stop" lang="zh" only="solution"
# ---
# **停一下。** 下面是练习 3 的答案。
#
# ---
# %% id="ex_handoff" kind="exercise"
def decide_strategy_handoff(evidence, minimum_repeats=3):
    """
    [en] {contract}
    [zh] 判断成对的证据是否完整，可以交给预算项目。
    [zh]
    [zh] 只交出候选；不替它挑选，也不看预算。
    [zh]
    [zh] 参数：
    [zh]     evidence：`build_strategy_pair_evidence` 的返回值。
    [zh]     minimum_repeats：基线和每个可比运行至少要有的成功次数。
    [zh]
    [zh] 返回：
    [zh]     `status`、`reason`、`next_action` 和 `eligible_candidates`（名字，保持顺序），第一条命中为准：
    [zh]
    [zh]     1. 基线或任一可比运行的重复次数少于最小值：
    [zh]        `rerun_required`、`insufficient_repeats`、`repeat_paired_runs`，没有名字。
    [zh]     2. 没有 `execution_path_verified` 严格等于 True 的可比运行：
    [zh]        `no_valid_candidate`、`no_comparable_strategy`、`repair_strategy_execution`，没有名字。
    [zh]     3. 其余：`ready_for_budget_review`、`paired_evidence_complete`、
    [zh]        `send_to_memory_budget_project`，附上可比且路径已验证的运行的名字。
    [zh]
    [zh] 古怪的输入绝不会被交出去。不是非负整数的 `repeat_count` 视为 0；不是有限数的最小值永远达不到，
    [zh] 小于 1 的视为 1。不是 list 的 comparisons、不是 dict 的行、没有名字的行，什么都交不出。
    [zh] 输入不会被修改。
    """
    ### BEGIN SOLUTION
    def count(value):
        try:
            valid = not isinstance(value, bool) and value >= 0 and value == int(value)
        except (TypeError, ValueError, OverflowError):
            valid = False
        return int(value) if valid else 0

    def answer(status, reason, names, next_action):
        return {"status": status, "reason": reason, "eligible_candidates": names, "next_action": next_action}

    try:
        minimum = math.inf if isinstance(minimum_repeats, bool) or not math.isfinite(minimum_repeats) \
            else max(minimum_repeats, 1)
    except (TypeError, OverflowError):
        minimum = math.inf
    given = evidence if isinstance(evidence, dict) else {}
    base = given.get("baseline") if isinstance(given.get("baseline"), dict) else {}
    rows = given.get("comparisons") if isinstance(given.get("comparisons"), (list, tuple)) else []
    comparable = [row for row in rows if isinstance(row, dict) and row.get("status", "ok") == "comparable"]
    names = [row.get("name") for row in comparable if row.get("execution_path_verified") is True]
    eligible = [name for name in names if isinstance(name, str) and name]
    if any(count(row.get("repeat_count")) < minimum for row in (base, *comparable)):
        return answer("rerun_required", "insufficient_repeats", [], "repeat_paired_runs")
    if not eligible:
        return answer("no_valid_candidate", "no_comparable_strategy", [], "repair_strategy_execution")
    return answer("ready_for_budget_review", "paired_evidence_complete", eligible, "send_to_memory_budget_project")
    ### END SOLUTION


# %% id="test_ex_handoff" kind="check" points=2
memstrat.check("ex_handoff", decide_strategy_handoff)

# %% [markdown] id="handoff_why" lang="en" only="solution"
# **Mechanism.** Three questions in a fixed order: repeated often enough, anything proven, then the names.
#
# **Invariant.** A name leaves this function only with enough repeats on both sides of its pair and a path that was shown. More candidates never make the answer laxer: one short run holds back all of them, because the pairs share a baseline and a schedule.
#
# **Test evidence.** Exactly three repeats pass and two do not, which catches `<=`. A comparable run whose path is `None` or `1` must not appear among the names.
# %% [markdown] id="handoff_why" lang="zh" only="solution"
# **机制**：按固定顺序问三个问题：重复够不够，有没有被证明的，最后才是名字。
#
# **不变量**：一个名字要离开这个函数，两边的重复次数都得够，路径也得有证据。候选变多不会让结论变松：只要有一个重复不足，全部都不交，因为这些对照共用同一条基线和同一套排程。
#
# **测试证据**：刚好三次能过、两次不能过，写成 `<=` 会被抓住。路径是 `None` 或 `1` 的可比运行，名字不许出现在结果里。
# %% [markdown] id="record_intro" lang="en"
# ## Your functions on a real record
#
# The record below was measured on a CPU with the small `tiny` model: four strategies, three repeats each, every repeat in a fresh process. It ships with the package, so it also opens on Colab.
#
# **Predict** from notebook 01: does offload save device memory here? Which strategy pays most for it?
# %% [markdown] id="record_intro" lang="zh"
# ## 用你的函数处理一份真实记录
#
# 下面这份记录是在 CPU 上用小模型 `tiny` 测的：四种策略，每种重复三次，每次都在全新的进程里。它随包一起安装，在 Colab 上也能打开。
#
# **预测**（结合 01）：offload 在这里能不能省下设备内存？哪种策略付出的代价最大？
# %% id="record_load" compare=true
record = widgets.reference_record("tiny", "g0")
rows = evidence.pairs_from_record(record)
print("run_mode:", record["run_mode"], "| workload:", record["config"]["workload"])
widgets.show_rows([rows[0], *rows[1]])

# %% id="record_pairs" compare=true
if widgets.all_done("ex_validate", "ex_pairs", "ex_handoff"):
    verdict = validate_strategy_experiment(*rows)
    print("valid:", verdict["is_valid"], verdict["issues"])
    pairs = build_strategy_pair_evidence(*rows)
    widgets.show_rows(pairs["comparisons"])
    print(json.dumps(decide_strategy_handoff(pairs), indent=2))

# %% [markdown] id="record_read" lang="en"
# **Read.** All three strategies that keep fewer tensors on the device reach nearly the same peak. They do not save the same bytes: look back at what each of them drops. At this size the *optimizer step* sets the peak once the activations are gone, and no strategy here touches it. Notebook 03 takes that apart; notebook 05 shows the phases.
#
# `ready_for_budget_review` is no recommendation. It says that someone may now apply a budget.
# %% [markdown] id="record_read" lang="zh"
# **解读**：三种在设备上少留张量的策略，峰值几乎一样。它们省掉的字节数其实并不相同，回想一下各自丢掉了什么。在这个规模下，激活一旦拿走，峰值就由*优化器更新*决定，而这里没有哪种策略动得了它。03 会拆开来看，05 会按阶段画出来。
#
# `ready_for_budget_review` 不是推荐，它只是说：现在可以拿预算来衡量了。
# %% [markdown] id="public_intro" lang="en"
# ## A record that cannot be decided
#
# The next figures come from a public GPU course. They are real, but they carry no ids, no repeat counts and no path fields.
#
# **Predict** what your functions make of them.
# %% [markdown] id="public_intro" lang="zh"
# ## 一份下不了结论的记录
#
# 下面的数字来自一门公开的 GPU 课程。数字是真的，但没有 id，没有重复次数，也没有路径字段。
#
# **预测**：你的函数会怎么处理它们？
# %% id="public_run" compare=true
public = widgets.reference_record("public", "g0")
if widgets.all_done("ex_validate", "ex_pairs", "ex_handoff"):
    public_rows = evidence.pairs_from_record(public)
    for issue in validate_strategy_experiment(*public_rows)["issues"]:
        print(issue)

# %% [markdown] id="public_read" lang="en"
# **Read.** Every candidate is refused, and not because the figures look wrong: a missing id counts as a mismatch, and nobody can tell whether the declared path ran, or how often. Such a record may be *shown*. It must never be *decided*.
# %% [markdown] id="public_read" lang="zh"
# **解读**：每个候选都被拒绝了，并不是因为数字看着不对：缺了 id 就算不一致，而且没人说得清声明的路径有没有真的跑过、跑了几次。这样的记录可以*展示*，绝不能拿来*下结论*。
# %% [markdown] id="limits" lang="en"
# ## Limits
#
# * Equal ids say that two runs had the same task and machine. They do not say that the machine was idle; repeats, interleaved and compared within a block, do (notebook 05).
# * A verified path proves that a strategy ran, not that it paid off.
# * Nothing here knows a budget. Savings of 5 MiB and 5 GiB pass alike.
#
# ## Next
#
# Your functions are saved in `my_work/`. Notebook 04 measures this machine and runs **them** on the records it makes. Before that, notebook 03 asks what a GPU you do not have would say.
# %% [markdown] id="limits" lang="zh"
# ## 局限
#
# * id 相同，说明两次运行的任务和机器一样，并不说明机器当时是空闲的；要靠交错执行、在同一区组内比较的重复（见 05）。
# * 路径已验证，只证明策略跑了，不证明它划算。
# * 这里没有任何预算概念：省 5 MiB 和省 5 GiB 一样通过。
#
# ## 下一步
#
# 你写的函数已经存到 `my_work/`。04 会测量这台机器，并用**你的**函数去判断它刚生成的记录。在那之前，03 会问：一块你手边没有的 GPU 会给出什么答案？
