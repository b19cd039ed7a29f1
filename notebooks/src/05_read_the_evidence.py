# %% [markdown] id="title" lang="en"
# # Which strategy, under which limits, and how sure are we?
#
# {badges}
#
# **You will know** how to read a record as a set of limits and not as a ranking; how a decision moves when a gate moves; which phase sets each peak; how wide the noise is; and how to write a handoff that somebody else can check.
#
# **Needs** 30 minutes, any machine. It reads records and measures nothing.
# %% [markdown] id="title" lang="zh"
# # 选哪种策略，在什么条件下，有多大把握？
#
# {badges}
#
# **学完你会知道**：怎样把一份记录读成一组约束，而不是一张排行榜；门槛一动，结论怎样跟着动；每个峰值由哪个阶段决定；噪声有多宽；以及怎样写一份别人能核对的交接说明。
#
# **需要**：30 分钟，任何机器都行。只读记录，不测量。
# %% id="first_cell" kind="first"
# %% id="imports"
from memstrat import explorer, plots, readout, widgets
from memstrat.estimate import TraceSettings, estimate
from memstrat.experiment import load_experiment

# %% [markdown] id="choose_intro" lang="en"
# ## Which records?
#
# Put in the label you used in 04. With `None` you read the record that ships with the package, measured on a CPU with `tiny`.
# %% [markdown] id="choose_intro" lang="zh"
# ## 读哪份记录？
#
# 填上你在 04 里用的标签。填 `None` 就读随包附带的那份记录，它是在 CPU 上用 `tiny` 测的。
# %% id="choose"
LABEL = None

if LABEL:
    records = readout.read_label(LABEL)
    g0, g1, decision = records.g0, records.g1, records.decision
else:
    g0, g1, decision = (widgets.reference_record("tiny", kind) for kind in ("g0", "g1", "decision"))

# %% id="choose_facts" compare=true
print(g0["run_mode"], "|", g0["config"]["model_id"], "|", g0["config"]["seq_len"], "tokens |",
      g0["config"]["repeats"], "repeats")
print("path verified:", {row["name"]: row["execution_path_verified"] for row in g0["candidates"]})

# %% [markdown] id="choose_read" lang="en"
# **Read.** Before any figure: is it a rehearsal, did every path run, how many repeats? A record that fails here is not worth a plot.
# %% [markdown] id="choose_read" lang="zh"
# **解读**：看任何数字之前先问：这是不是预演？每条路径都跑了吗？重复了几次？过不了这一关的记录，不值得画图。
# %% [markdown] id="plot_intro" lang="en"
# ## Memory against throughput
#
# **Predict.** Which gate cuts off the baseline? Would you choose the same strategy if the memory cap were twice as high?
# %% [markdown] id="plot_intro" lang="zh"
# ## 内存对吞吐
#
# **预测**：基线是被哪道门槛挡住的？如果内存上限提高一倍，你还会选同一个策略吗？
# %% id="plot_draw"
widgets.show(plots.plot_memory_throughput(g0, widgets.language()))
widgets.show(explorer.gates_table(g0))

# %% [markdown] id="gates_intro" lang="en"
# ## Move the gates
#
# Four sliders hold the budget. The plot, the decision and the table follow. The record itself does not change.
#
# Find, with as few moves as you can:
# 1. a budget under which *nothing* is feasible;
# 2. one under which the baseline is the best choice;
# 3. the minimum saving at which `accept` turns into `tune`.
# %% [markdown] id="gates_intro" lang="zh"
# ## 拖动门槛
#
# 四个滑块就是预算。图、结论和表会跟着变，记录本身不变。
#
# 用尽量少的步数找出：
# 1. 一个*什么都不可行*的预算；
# 2. 一个基线就是最佳选择的预算；
# 3. 让 `accept` 变成 `tune` 的那个最小节省量。
# %% id="gates"
gates = explorer.explore_gates(g0)
widgets.show(gates)

# %% id="gates_known" compare=true
for changed in ({}, {"memory_cap_mb": 20}, {"memory_cap_mb": 40, "min_memory_saving_mb": 12}):
    found = explorer.decide(explorer.with_budget(widgets.reference_record("tiny", "g0"), changed))
    print(changed, "->", found["decision"], found["reason"])

# %% [markdown] id="gates_read" lang="en"
# **Read.** The same measurements gave three decisions. A decision is a statement about a record *and* a budget; without the second it means nothing. `reject` says that the task does not fit this budget, `tune` that something must change before adoption.
# %% [markdown] id="gates_read" lang="zh"
# **解读**：同样的测量，给出了三种结论。结论说的是“这份记录*加上*这份预算”，缺了后者就没有意义。`reject` 是说这个预算放不下这个任务；`tune` 是说采用之前还得改点什么。
# %% [markdown] id="phases_intro" lang="en"
# ## Which phase sets the peak?
#
# **Predict.** A strategy that halves what is alive after forward, but not the optimizer step: by how much does the peak fall?
# %% [markdown] id="phases_intro" lang="zh"
# ## 峰值由哪个阶段决定？
#
# **预测**：如果一个策略把前向后存活的量减半，却动不了优化器更新，峰值会降多少？
# %% id="phases_draw"
widgets.show_drawing(plots.plot_phases(g0, widgets.language()))

# %% [markdown] id="phases_read" lang="en"
# **Read.** Only down to the next highest phase. The thick edge marks the phase that sets each strategy's peak. Where it is the optimizer step, the next lever is not another activation strategy but `foreach=False`, a smaller optimizer state, or a longer sequence for the same memory.
# %% [markdown] id="phases_read" lang="zh"
# **解读**：只能降到第二高的那个阶段。粗边框标出决定各策略峰值的阶段。如果那是优化器更新，下一个杠杆就不再是别的激活策略，而是 `foreach=False`、更小的优化器状态，或者用同样的内存换更长的序列。
# %% [markdown] id="real_intro" lang="en"
# ## A record where it did not pay
#
# SmolLM2-135M with its real weights on English prose, AdamW, 128 tokens: the second committed record. Every path is verified.
#
# **Predict.** Forward drops from 1,752 to about 1,590 MiB. What is the decision?
# %% [markdown] id="real_intro" lang="zh"
# ## 一份没有划算的记录
#
# SmolLM2-135M，真实权重，英文文本，AdamW，128 个 token：这是第二份随库提交的记录。每条路径都已验证。
#
# **预测**：前向从 1,752 MiB 降到约 1,590 MiB。结论会是什么？
# %% id="real_run" compare=true
real = widgets.reference_record("smollm2", "g0")
widgets.show(explorer.gates_table(real))
print(explorer.decide(real))

# %% [markdown] id="real_read" lang="en"
# **Read.** All four peaks are equal to the byte. Nothing failed: forward really is smaller, every layer was recomputed, every tensor came back. But a 135M model at 128 tokens has few activations and much optimizer state, so the peak never was theirs. `tune` is the right word: change the length, the optimizer or the budget before adopting a price without a gain.
# %% [markdown] id="real_read" lang="zh"
# **解读**：四个峰值一个字节都不差。并没有什么失败：前向确实变小了，每一层都重算了，每个张量都回来了。只是 135M 的模型在 128 个 token 时，激活少、优化器状态多，峰值从来就不归激活管。`tune` 说得很准：在为没有收益的东西付代价之前，先改长度、优化器或者预算。
# %% [markdown] id="ladder_intro" lang="en"
# ## The ladder
#
# G1 took the optimizer's state away and let the sequence grow.
#
# **Predict.** Which line is steepest? What would the curves do at ten times the length?
# %% [markdown] id="ladder_intro" lang="zh"
# ## 长度阶梯
#
# G1 拿掉了优化器状态，让序列变长。
#
# **预测**：哪条线最陡？长度再增加十倍，曲线会怎样？
# %% id="ladder_draw"
widgets.show_drawing(plots.plot_ladder(g1, widgets.language()))

# %% [markdown] id="ladder_read" lang="en"
# **Read.** The slope is the price of a token. It tells about the mechanism, and about lengths that were tested: the last safe length is a fact, the line beyond it a guess.
# %% [markdown] id="ladder_read" lang="zh"
# **解读**：斜率就是一个 token 的价格。它说明的是机制，以及测过的那些长度：最后一个安全长度是事实，再往外延伸的线只是猜测。
# %% [markdown] id="sure_intro" lang="en"
# ## How sure are we?
#
# Memory repeats to the byte; time does not. Runs are interleaved in blocks, and each block gives one throughput ratio against *its own* baseline.
#
# **Predict.** Is the spread between blocks larger or smaller than the difference between strategies?
# %% [markdown] id="sure_intro" lang="zh"
# ## 有多大把握？
#
# 内存可以精确到字节地复现，时间不行。运行是按区组交错的，每个区组里，都拿策略和*同组的*基线算一个吞吐比。
#
# **预测**：区组之间的波动，比策略之间的差别大还是小？
# %% id="sure_table"
widgets.show(widgets.Table(
    ["strategy", "ratio in each block", "median", "95 % interval"],
    [[name, ", ".join(f"{ratio:.2f}" for ratio in row["block_throughput_ratios"]), row["throughput_ratio_median"],
      " to ".join(f"{bound:.2f}" for bound in row["throughput_ratio_interval_95"] or ["-", "-"])]
     for name, row in g0["repeat_summary"].items() if row["successful_runs"]]))

# %% [markdown] id="sure_read" lang="en"
# **Read.** Where two intervals overlap, the record does not say which strategy is faster, however different the medians look. With three blocks the interval is little more than the range. If your decision hangs on such a difference, measure again with `repeats=7` and a new label on an idle machine.
# %% [markdown] id="sure_read" lang="zh"
# **解读**：两个区间有重叠时，不管中位数看起来差多少，这份记录都没有告诉你谁更快。只有三个区组时，区间比极差好不了多少。如果你的结论恰好取决于这点差别，就换个新标签，在空闲的机器上用 `repeats=7` 再测一遍。
# %% [markdown] id="predicted_intro" lang="en"
# ## Predicted against measured
#
# The estimate of notebook 03, for the task of this record.
#
# **Predict.** On a CPU both sides count live tensors. How close should they be?
# %% [markdown] id="predicted_intro" lang="zh"
# ## 预测对实测
#
# 用 03 的预测方法，对这份记录的任务再算一遍。
#
# **预测**：在 CPU 上，两边数的都是存活张量。它们应该有多接近？
# %% id="predicted_run"
config = g0["config"]
workload = load_experiment(config["workload"], seq_len=config["seq_len"]).workload
predicted = estimate(workload, settings=TraceSettings(is_cpu=g0["run_mode"] == "cpu_rehearsal"))

# %% id="predicted_table" compare=true
measured = {row["name"]: row["peak_memory_mb"] for row in g0["candidates"] if row["peak_memory_mb"]}
widgets.show(widgets.Table(
    ["strategy", "predicted, MiB", "measured, MiB", "difference, %"],
    [[item.name, item.peak_allocated_bytes / 2**20, measured[item.name],
      f"{100 * (item.peak_allocated_bytes / 2**20 / measured[item.name] - 1):+.1f}"]
     for item in predicted.strategies if item.name in measured]))

# %% [markdown] id="predicted_read" lang="en"
# **Read.** Agreement means that the model of the step is right: every byte of the peak is explained. A gap is a finding. Usually another attention kernel ran than was assumed, another optimizer path, or a tensor outlives its use. A record whose peak lies far from its estimate deserves a second look before a decision.
# %% [markdown] id="predicted_read" lang="zh"
# **解读**：吻合，说明对这个训练步的建模是对的，峰值的每个字节都有解释。对不上就是一个发现：通常是实际跑的注意力算子和假设的不同，或者优化器走了另一条路，或者有张量活得比需要的久。峰值与预测相差很远的记录，下结论之前值得再看一眼。
# %% [markdown] id="handoff_intro" lang="en"
# ## Your turn: write the handoff
#
# The budget project reads three things. Fill them from what you saw above, one or two sentences each:
#
# | part | answers | example of a good one |
# |---|---|---|
# | conclusion | what, under which budget | "checkpoint for full training at 256 tokens, cap 30 MiB" |
# | basis | which record, which repeats, which path | "G0 `ada_v1`, 3 of 3 repeats, path verified" |
# | use | what it may and may not be used for | "a rehearsal: repeat on the target GPU before adoption" |
# %% [markdown] id="handoff_intro" lang="zh"
# ## 轮到你：写交接说明
#
# 预算项目要看三样东西。根据上面看到的，每样写一两句：
#
# | 部分 | 回答什么 | 好的例子 |
# |---|---|---|
# | 结论 | 选什么，在什么预算下 | “完整训练、256 个 token、上限 30 MiB，用 checkpoint” |
# | 依据 | 哪份记录、几次重复、路径如何 | “G0 `ada_v1`，3 次重复全部成功，路径已验证” |
# | 用途 | 能用来做什么，不能做什么 | “这是预演：采用之前，要在目标 GPU 上重测” |
# %% id="handoff_facts"
widgets.show_decision(decision)
print("G0:", decision["source_g0"], decision["source_g0_sha256"][:12])
print("G1:", decision["source_g1"], decision["source_g1_sha256"][:12])

# %% id="handoff_note"
conclusion = ""
basis = ""
use = ""
if conclusion and basis and use:
    print(f"{conclusion}\n{basis}\n{use}")
else:
    print("not written yet: conclusion, basis, use")  # [en]
    print("还没写：结论、依据、用途")  # [zh]

# %% [markdown] id="limits" lang="en"
# ## Limits
#
# * A decision holds for one task, one machine, one budget. A change of length, model, dtype or card asks for new measurements.
# * Quality is an eval loss after a handful of steps. It shows a broken strategy, not a slightly worse training.
# * Moving a gate after seeing the result is exploration. Write down the budget before you measure.
#
# ## Next
#
# 06 asks what a better strategy would look like, and runs yours through the same gates.
# %% [markdown] id="limits" lang="zh"
# ## 局限
#
# * 一个结论只对一个任务、一台机器、一份预算成立。长度、模型、dtype 或显卡一变，就要重新测。
# * 这里的质量，是寥寥几步之后的 eval loss。它能暴露坏掉的策略，看不出训练是否略差一点。
# * 看到结果之后再动门槛，那是探索。预算应该在测量之前就写下来。
#
# ## 下一步
#
# 06 要问：更好的策略会是什么样？并让你自己的策略过同样的门槛。
