# %% [markdown] id="title" lang="en"
# # What does this machine say?
#
# {badges}
#
# **You will know** what each stage of the experiment does and why they come in this order; how your machine answers the question of the series; and what your own functions make of the records you just measured.
#
# **Needs** 20 minutes, of which the machine takes about two on a CPU (`tiny`, a rehearsal) and five to ten on a GPU (`pressure`). Nothing is downloaded unless you ask for pretrained weights.
# %% [markdown] id="title" lang="zh"
# # 这台机器怎么说？
#
# {badges}
#
# **学完你会知道**：实验的每个阶段做什么，为什么是这个顺序；你的机器怎样回答整个系列的问题；你自己写的函数，怎样判断你刚刚测出的记录。
#
# **需要**：20 分钟。其中机器在 CPU 上大约跑两分钟（`tiny`，预演），在 GPU 上五到十分钟（`pressure`）。除非你要预训练权重，否则不下载任何东西。
# %% id="first_cell" kind="first"
# %% id="imports"
import json

import memstrat
from memstrat import evidence, stages, widgets

# %% [markdown] id="stages" lang="en"
# ## Four stages, one direction
#
# | stage | what it does | needs a GPU |
# |---|---|---|
# | `prepare` | only reads: machine, packages, model files, earlier records | no |
# | `g0` | every strategy on the fixed task, three times each, interleaved | for a result; a CPU rehearses |
# | `g1` | longer sequences, SGD without momentum: activations alone | for a result; a CPU rehearses |
# | `close` | decides from the two records; loads no model, measures nothing | no |
#
# Each stage reads what the one before wrote, and writes once. A record is never overwritten: another try takes another label. A stage that was stopped continues where it was when you run it again with the same label.
# %% [markdown] id="stages" lang="zh"
# ## 四个阶段，一个方向
#
# | 阶段 | 做什么 | 需要 GPU 吗 |
# |---|---|---|
# | `prepare` | 只读不写：机器、软件包、模型文件、已有的记录 | 不需要 |
# | `g0` | 在固定任务上跑每种策略，各三次，交错执行 | 要结果就需要；CPU 上是预演 |
# | `g1` | 更长的序列，不带动量的 SGD：只看激活 | 要结果就需要；CPU 上是预演 |
# | `close` | 根据两份记录下结论；不加载模型，也不测量 | 不需要 |
#
# 每个阶段读前一个阶段写的东西，并且只写一次。记录绝不覆盖：想重来，就换一个标签。中途停掉的阶段，用同一个标签再跑就会接着做。
# %% [markdown] id="intent_intro" lang="en"
# ## Your turn: say what you intend
#
# 1. Choose a label of your own, such as `ada_laptop_v1`.
# 2. Set `RUN_STAGE` to `prepare`, run the cells below, and read.
# 3. Then `g0`, then `g1`, then `close`: change the one word, run this cell and that stage's cell.
#
# Every stage cell does nothing unless `RUN_STAGE` is its own, so *Run All* can never start a measurement by accident.
# %% [markdown] id="intent_intro" lang="zh"
# ## 轮到你：先说清楚要做什么
#
# 1. 起一个自己的标签，比如 `ada_laptop_v1`。
# 2. 把 `RUN_STAGE` 设为 `prepare`，运行下面的单元，读结果。
# 3. 然后依次是 `g0`、`g1`、`close`：只改这一个词，再运行本单元和对应阶段的单元。
#
# 每个阶段的单元只在 `RUN_STAGE` 等于它自己时才会动，所以“全部运行”不会误启动测量。
# %% id="intent"
RUN_LABEL = "replace_with_unique_label"
RUN_STAGE = "prepare"

SETTINGS = {
    "preset": None,         # None: tiny on a CPU, pressure on a GPU  # [en]
    "preset": None,         # None：CPU 上用 tiny，GPU 上用 pressure  # [zh]
    "weights": "random",    # or "pretrained", downloaded if it is not here  # [en]
    "weights": "random",    # 或 "pretrained"，本地没有就下载  # [zh]
    "model_source": None,   # "huggingface", "modelscope", "local" or None for auto  # [en]
    "model_source": None,   # "huggingface"、"modelscope"、"local"，None 表示自动  # [zh]
}

# %% id="intent_solution" only="solution"
RUN_LABEL = "walkthrough"  # this edition walks all four stages  # [en]
RUN_LABEL = "walkthrough"  # 这个版本会把四个阶段都走一遍  # [zh]

# %% [markdown] id="weights" lang="en"
# <details><summary>About weights and where they come from</summary>
#
# Random weights have the same shapes, so memory and time are the same; their loss means nothing, and the record says so. For `"pretrained"`, files are looked for on this machine first, then on Hugging Face (`HF_ENDPOINT` names a mirror), then on ModelScope if its package is installed. If none can be reached, the stage says so before anything is measured; `"random"` is the choice that always works offline.
# </details>
# %% [markdown] id="weights" lang="zh"
# <details><summary>权重从哪里来</summary>
#
# 随机权重的形状相同，所以内存和时间相同；它的损失没有意义，记录里会写明。选 `"pretrained"` 时，先找本机上的文件，再找 Hugging Face（可用 `HF_ENDPOINT` 指定镜像），装了 modelscope 包的话再找 ModelScope。都连不上时，会在测量开始之前就告诉你；`"random"` 则永远可以离线使用。
# </details>
# %% [markdown] id="functions_intro" lang="en"
# ## Your functions
#
# `load_work` takes what you saved in 02. Where you have not finished one, it takes the reference and says so.
# %% [markdown] id="functions_intro" lang="zh"
# ## 你的函数
#
# `load_work` 会读取你在 02 里存下的函数；哪一个还没完成，就用参考答案代替，并且说明。
# %% id="functions"
validate = memstrat.load_work("ex_validate")
pair = memstrat.load_work("ex_pairs")
hand_over = memstrat.load_work("ex_handoff")


def judge(record, seq_len=None):
    rows = evidence.pairs_from_record(record, seq_len)
    verdict = validate(*rows)
    if not verdict["is_valid"]:
        return {"issues": verdict["issues"]}
    pairs = pair(*rows)
    widgets.show_rows(pairs["comparisons"])
    return hand_over(pairs, minimum_repeats=3)


# %% [markdown] id="prepare_intro" lang="en"
# ## Stage `prepare`
#
# **Predict.** Is a training baseline there already? Which command would make it?
# %% [markdown] id="prepare_intro" lang="zh"
# ## 阶段 `prepare`
#
# **预测**：训练基线已经有了吗？没有的话，哪条命令会生成它？
# %% id="stage_prepare"
if widgets.is_my_stage("prepare", RUN_STAGE):
    widgets.show_prepare(stages.prepare(RUN_LABEL, **SETTINGS))

# %% [markdown] id="g0_intro" lang="en"
# ## Stage `g0`: full training
#
# It first measures the *training baseline*, the task without any strategy, and then every strategy three times, in the order ABCD, DCBA, ABCD. Every run has a process of its own; warm-up steps are not timed; peaks are read before evaluation; a separate probe step collects the path evidence.
#
# **Predict.** The peak of checkpoint as a share of the baseline's, and its throughput ratio.
# %% [markdown] id="g0_intro" lang="zh"
# ## 阶段 `g0`：完整训练
#
# 先测*训练基线*，也就是不用任何策略的任务；再把每种策略各测三次，顺序是 ABCD、DCBA、ABCD。每次运行都有自己的进程；预热步不计时；峰值在评估之前读取；路径证据由单独的探测步收集。
#
# **预测**：checkpoint 的峰值是基线的百分之几？吞吐比是多少？
# %% id="intent_g0" only="solution"
RUN_STAGE = "g0"

# %% id="stage_g0"
if widgets.is_my_stage("g0", RUN_STAGE):
    g0 = stages.g0(RUN_LABEL, **SETTINGS)
    widgets.show_rows(g0["candidates"])

# %% id="judge_g0"
if widgets.is_my_stage("g0", RUN_STAGE):
    print(json.dumps(judge(g0), indent=2))

# %% [markdown] id="g0_read" lang="en"
# **Read.** These are *your* functions on *your* machine's record. `memory_saving_mb` is against the baseline of this record; `ready_for_budget_review` says that the evidence is complete, not that a strategy won.
#
# On a CPU the peak counts live tensors (`memory_source: tensor_accounting`), and `run_mode` is `cpu_rehearsal` in the record and in its file name.
# %% [markdown] id="g0_read" lang="zh"
# **解读**：这是*你的*函数作用在*你的*机器测出的记录上。`memory_saving_mb` 是相对于这份记录里的基线；`ready_for_budget_review` 说的是证据完整，不是哪种策略赢了。
#
# 在 CPU 上，峰值来自存活张量计数（`memory_source: tensor_accounting`），记录和文件名里的 `run_mode` 都是 `cpu_rehearsal`。
# %% [markdown] id="g1_intro" lang="en"
# ## Stage `g1`: activations alone
#
# SGD without momentum has no state, so what is left of the peak is weights, gradients and activations. Then the sequence grows. A longer length is tried only if the peak projected from the last one fits the free memory minus a margin: this stage never finds the limit by hitting it.
#
# **Predict.** From the shortest to the longest length, whose peak grows most? Whose least?
# %% [markdown] id="g1_intro" lang="zh"
# ## 阶段 `g1`：只看激活
#
# 不带动量的 SGD 没有状态，峰值里就只剩权重、梯度和激活。然后让序列变长。只有当从上一个长度推算出的峰值，放得进空闲内存减去安全余量时，才会尝试更长的长度：这个阶段从不靠撞墙来找极限。
#
# **预测**：从最短到最长，谁的峰值涨得最多？谁涨得最少？
# %% id="intent_g1" only="solution"
RUN_STAGE = "g1"

# %% id="stage_g1"
if widgets.is_my_stage("g1", RUN_STAGE):
    g1 = stages.g1(RUN_LABEL, **SETTINGS)
    print(g1["status"])
    for length in g1["length_records"]:
        widgets.show_rows(length["candidates"], ["name", "seq_len", "status", "peak_memory_mb", "samples_per_s"])

# %% id="judge_g1"
if widgets.is_my_stage("g1", RUN_STAGE):
    longest = g1["length_records"][-1]["seq_len"]
    print(json.dumps(judge(g1, longest), indent=2))

# %% [markdown] id="g1_read" lang="en"
# **Read.** With the optimizer's share gone the strategies come apart, as 01 promised: baseline grows fastest, because every saved tensor grows with the length. This is evidence about the *mechanism*. It does not say that AdamW training should adopt anything.
# %% [markdown] id="g1_read" lang="zh"
# **解读**：优化器那一份拿掉之后，各策略拉开了差距，正如 01 所说：基线涨得最快，因为每个被保存的张量都随长度增长。这是关于*机制*的证据，并不说明 AdamW 训练应该采用谁。
# %% [markdown] id="close_intro" lang="en"
# ## Stage `close`: the decision
#
# **Predict.** Two scopes will be decided. Which record decides which, and can the second one promote a strategy to full training?
# %% [markdown] id="close_intro" lang="zh"
# ## 阶段 `close`：下结论
#
# **预测**：会对两个范围分别下结论。各由哪份记录决定？第二个范围能不能把某个策略推到完整训练？
# %% id="intent_close" only="solution"
RUN_STAGE = "close"

# %% id="stage_close"
if widgets.is_my_stage("close", RUN_STAGE):
    print(stages.review(RUN_LABEL)["problems"])
    decision = stages.close(RUN_LABEL)
    widgets.show_decision(decision)

# %% id="solution_facts" compare=true only="solution"
print("run mode:", decision["run_mode"], "| handoff:", decision["handoff"]["status"])
print("scopes:", sorted(decision["decision_scopes"]))
print("g1 may promote to full training:",
      decision["decision_scopes"]["activation_memory_mechanism"]["promotable_to_full_training"])
print("strategies measured:", [row["name"] for row in g0["candidates"]], "x", g0["config"]["repeats"])

# %% [markdown] id="close_read" lang="en"
# **Read.**
#
# | conclusion | basis | use |
# |---|---|---|
# | `full_training_adoption` | G0 alone: AdamW, every repeat, every gate | adopt, tune or reject in training |
# | `activation_memory_mechanism` | G1: activations isolated by SGD | evidence for the budget project; never a promotion |
# | handoff `rehearsal_only` | the records were made on a CPU | a lesson; measure on a GPU before using it |
# %% [markdown] id="close_read" lang="zh"
# **解读**：
#
# | 结论 | 依据 | 用途 |
# |---|---|---|
# | `full_training_adoption` | 只看 G0：AdamW、每次重复、每道门槛 | 训练中采用、调整或放弃 |
# | `activation_memory_mechanism` | G1：用 SGD 隔离出的激活 | 交给预算项目的证据；绝不用来推广 |
# | 交接状态 `rehearsal_only` | 记录是在 CPU 上做的 | 一堂课；使用之前先在 GPU 上测 |
# %% [markdown] id="limits" lang="en"
# ## Limits
#
# * Three repeats bound the noise of one afternoon on one machine. Other work on the same cores can move times by far more than any strategy; the record keeps the load.
# * `tiny` exists so that the whole path fits in minutes. Its budget is low enough that a working checkpoint passes; its decision is no advice.
#
# ## Next
#
# 05 reads the records you made: figures, gates you can move, and how sure you may be.
# %% [markdown] id="limits" lang="zh"
# ## 局限
#
# * 三次重复，只能框住一台机器一个下午的噪声。同样的核上还有别的活儿时，时间的波动会远超任何策略的差别；记录里写了当时的负载。
# * `tiny` 的存在是为了几分钟走完全程。它的预算定得低，能工作的 checkpoint 就能通过；它的结论不构成建议。
#
# ## 下一步
#
# 05 会解读你测出的记录：图、可以拖动的门槛，以及你能有多大把握。
