# %% [markdown] id="title" lang="en"
# # What will I know at the end, and what can this machine do?
#
# {badges}
#
# **The question of the series.** A training task does not fit, or barely fits. Should you recompute activations, move them to the host, or both? And what will it cost you?
#
# **You will know**, after seven notebooks, how to answer that for your own model on your own machine, and how to defend the answer with a record that somebody else can check.
#
# **Needs** 10 minutes for this notebook. A laptop is enough for all of them. With a GPU the same cells give real results; without one they give a rehearsal, and say so.
# %% [markdown] id="title" lang="zh"
# # 学完之后我会知道什么？这台机器又能做什么？
#
# {badges}
#
# **整个系列要回答的问题**：一个训练任务放不下，或者勉强放得下。该把激活重算一遍，还是搬到主机内存，还是两样都做？代价是什么？
#
# **学完七个笔记本，你会知道**怎样对自己的模型、自己的机器回答这个问题，并且拿得出一份别人能核对的记录。
#
# **需要**：本篇 10 分钟。整个系列用一台笔记本电脑就够。有 GPU，同样的单元给出真实结果；没有 GPU，给出的是预演，并且会明说。
# %% id="first_cell" kind="first"
# %% id="imports"
from memstrat import explorer, plots, stages, widgets

# %% [markdown] id="series" lang="en"
# ## Where the series leads
#
# | notebook | question | minutes |
# |---|---|---|
# | 00 start here | what will I know, what can this machine do? | 10 |
# | 01 what backward needs | which tensors does autograd keep? | 45 |
# | 02 fair pairs | when may two runs be compared? | 45 |
# | 03 predict | what would it peak at on a GPU I do not have? | 30 |
# | 04 run | what does this machine say? | 20 |
# | 05 read the evidence | which strategy, under which limits, how sure? | 30 |
# | 06 go further | what would a better strategy look like? | 40 |
#
# Go in order the first time. 01, 02 and 03 have exercises; what you write there judges the records you make in 04.
# %% [markdown] id="series" lang="zh"
# ## 整个系列怎么走
#
# | 笔记本 | 问题 | 分钟 |
# |---|---|---|
# | 00 从这里开始 | 我会知道什么，这台机器能做什么？| 10 |
# | 01 反向需要什么 | autograd 会保存哪些张量？| 45 |
# | 02 公平对照 | 两次运行什么时候才能比？| 45 |
# | 03 预测 | 在一块手边没有的 GPU 上，峰值会是多少？| 30 |
# | 04 运行 | 这台机器怎么说？| 20 |
# | 05 读证据 | 选哪种策略，在什么条件下，有多大把握？| 30 |
# | 06 更进一步 | 更好的策略会是什么样？| 40 |
#
# 第一遍请按顺序来。01、02、03 里有练习；你在那里写的函数，会在 04 里用来判断你自己测出的记录。
# %% [markdown] id="assets" lang="en"
# ## What goes in, what is done, what comes out
#
# | assets you bring | operations | deliverables |
# |---|---|---|
# | a model (config or weights) and a sequence length | predict its peak by phase and category | a prediction, with its assumptions |
# | a machine | measure a baseline, then every strategy, in fresh processes | G0 record: full training, AdamW |
# | room for longer sequences | climb a ladder of lengths, stopping at the safety margin | G1 record: activations isolated, SGD |
# | a budget: memory cap, throughput floor, quality floor | hold the records against it | decision record, with scope and limitations |
# | your functions from 02 | validate, pair, hand over | evidence that the budget project can use |
# %% [markdown] id="assets" lang="zh"
# ## 带来什么，做什么，交出什么
#
# | 你带来的资产 | 操作 | 交付物 |
# |---|---|---|
# | 一个模型（配置或权重）和序列长度 | 按阶段、按类别预测峰值 | 一份预测，写明假设 |
# | 一台机器 | 先测基线，再测每种策略，每次都用全新进程 | G0 记录：完整训练，AdamW |
# | 更长序列的空间 | 沿长度阶梯往上，到安全余量为止 | G1 记录：隔离激活，SGD |
# | 一份预算：内存上限、吞吐下限、质量下限 | 用它衡量记录 | 决策记录，写明适用范围和局限 |
# | 你在 02 里写的函数 | 校验、配对、交接 | 预算项目能直接使用的证据 |
# %% [markdown] id="machine_intro" lang="en"
# ## What can this machine do?
#
# One table. Nothing is downloaded, no model is loaded.
#
# **Predict.** Which device will it name, and how much memory is free right now?
#
# A GPU without native bf16 (a T4, say) is offered fp32: emulated bf16 would measure the emulation.
# %% [markdown] id="machine_intro" lang="zh"
# ## 这台机器能做什么？
#
# 一张表。不下载任何东西，也不加载模型。
#
# **预测**：它会报出哪个设备？现在有多少内存是空闲的？
#
# 不原生支持 bf16 的 GPU（比如 T4）会建议用 fp32：模拟出来的 bf16，测到的只是模拟本身。
# %% id="machine_check"
report = stages.prepare("replace_with_unique_label")
widgets.show_prepare(report)

# %% id="machine_verdict" compare=true
print("can run the preset that fits this machine:", report["ready"])  # [en]
print("能否运行适合这台机器的预设：", report["ready"])  # [zh]

# %% [markdown] id="machine_read" lang="en"
# **Read.** `ready` is about this machine and this task. If it says no, the last rows say why and what to do next. The preset follows the device:
#
# | device | preset | what it is | what it yields |
# |---|---|---|---|
# | CPU | `tiny` | 1.2 million parameters, seeded random weights | a rehearsal in about a minute |
# | CUDA | `pressure` | Qwen2.5-0.5B, fp32, 768 tokens | a real result in a few minutes |
# | either | `smollm2` | SmolLM2-135M with its real weights and real text | a loss that means something |
# %% [markdown] id="machine_read" lang="zh"
# **解读**：`就绪`说的是这台机器和这个任务。如果是“否”，最后几行会写原因和下一步。预设跟着设备走：
#
# | 设备 | 预设 | 是什么 | 能得到什么 |
# |---|---|---|---|
# | CPU | `tiny` | 120 万参数，固定种子的随机权重 | 约一分钟的预演 |
# | CUDA | `pressure` | Qwen2.5-0.5B，fp32，768 个 token | 几分钟内的真实结果 |
# | 都可以 | `smollm2` | SmolLM2-135M，真实权重，真实文本 | 有意义的损失 |
# %% [markdown] id="picture_intro" lang="en"
# ## The first picture
#
# It is drawn from a record that ships with the package: `tiny`, on a CPU, three repeats of four strategies. Down is less memory, right is faster. The lines are the budget's gates.
#
# **Predict.** Which corner is the good one? If two strategies save the same memory, which do you take?
# %% [markdown] id="picture_intro" lang="zh"
# ## 第一张图
#
# 这张图来自随包附带的一份记录：`tiny`，在 CPU 上，四种策略各重复三次。越靠下内存越少，越靠右越快；线是预算的门槛。
#
# **预测**：哪个角是好的？如果两种策略省的内存一样多，你选哪个？
# %% id="picture_draw"
record = widgets.reference_record("tiny", "g0")
widgets.show(plots.plot_memory_throughput(record, widgets.language()))
widgets.show(explorer.gates_table(record))

# %% [markdown] id="picture_read" lang="en"
# **Read.** Three strategies stand at one height: they peak at the same number of bytes. Then only the price tells them apart, and here even the prices lie close: on a CPU, offload is a copy within one memory. On a GPU it has to cross PCIe, and the order changes: measure before you believe.
#
# Why the same bytes? That is the question of 01 and 03.
# %% [markdown] id="picture_read" lang="zh"
# **解读**：三种策略落在同一高度上，峰值字节数完全相同。这时只能靠代价来区分，而这里连代价也很接近：在 CPU 上，offload 只是同一块内存里的拷贝。换到 GPU 上，数据要过 PCIe，排序就变了：先测量，再相信。
#
# 为什么字节数会一样？这正是 01 和 03 的问题。
# %% [markdown] id="public_intro" lang="en"
# ## The same picture from a GPU
#
# These figures were measured by a public course on a 12 GiB laptop GPU with Qwen2.5-0.5B. They are copied, not ours, and the record lacks path evidence.
#
# **Predict.** How far apart are the three strategies here?
# %% [markdown] id="public_intro" lang="zh"
# ## 同一张图，来自 GPU
#
# 这些数字由一门公开课程在 12 GiB 的笔记本 GPU 上用 Qwen2.5-0.5B 测得。数字是抄来的，不是我们测的，记录里也没有路径证据。
#
# **预测**：这里三种策略之间差多少？
# %% id="public_table" compare=true
public = widgets.reference_record("public", "g0")
widgets.show_rows(public["candidates"])

# %% [markdown] id="public_read" lang="en"
# **Read.** 6 MiB apart out of 9,450, and only about 330 MiB below the baseline: the same pattern as `tiny`, at four hundred times the size. The prices are not alike at all: offload runs at a quarter of the baseline's throughput.
#
# A decision needs both axes, a path that was proven, and repeats. That is what the next six notebooks build.
# %% [markdown] id="public_read" lang="zh"
# **解读**：在 9,450 MiB 里只差 6 MiB，比基线也只低了约 330 MiB。规模是 `tiny` 的四百倍，图形却一样。代价则完全不同：offload 的吞吐只有基线的四分之一。
#
# 要下结论，两根轴都要看，路径要有证据，还要有重复。接下来的六个笔记本，就是把这些一步步做出来。
# %% [markdown] id="limits" lang="en"
# ## Limits
#
# * A CPU rehearsal counts live tensors exactly and runs the whole path. Its times are this CPU's, and its decision is a lesson, never a result.
# * One GPU, one process. Sharded training changes what sets the peak.
#
# ## Next
#
# 01 opens the tape: which tensors does autograd keep, and why?
# %% [markdown] id="limits" lang="zh"
# ## 局限
#
# * CPU 预演能精确统计存活张量，也走完整条路径。但时间是这颗 CPU 的时间，结论只是一堂课，绝不是结果。
# * 只考虑单 GPU、单进程。分片训练里，决定峰值的因素会变。
#
# ## 下一步
#
# 01 会打开这条“磁带”：autograd 保存了哪些张量，为什么？
