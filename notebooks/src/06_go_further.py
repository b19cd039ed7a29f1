# %% [markdown] id="title" lang="en"
# # What would a better strategy look like?
#
# {badges}
#
# **You will know** five levers beyond the four strategies; how to register a strategy of your own in about ten lines; how to make it *prove* that it ran; and how to hold it against the others under the same gates.
#
# **Needs** 40 minutes, of which the machine takes about one on a CPU. Everything runs on `tiny`; with a GPU, choose `pressure`.
# %% [markdown] id="title" lang="zh"
# # 更好的策略会是什么样？
#
# {badges}
#
# **学完你会知道**：四种策略之外的五个杠杆；怎样用十行左右注册自己的策略；怎样让它*证明*自己真的跑了；以及怎样让它和其他策略过同样的门槛。
#
# **需要**：40 分钟，其中机器在 CPU 上约跑一分钟。全部用 `tiny`；有 GPU 可以选 `pressure`。
# %% id="first_cell" kind="first"
# %% id="imports"
from datetime import datetime

import torch
from memstrat import experiment, explorer, measure, models, stages, strategies, strategies_extra, widgets
from memstrat.estimate import TraceSettings, estimate
from memstrat.saved_tensors import HostOffload, counted_hooks

# %% [markdown] id="levers" lang="en"
# ## Five levers
#
# | lever | what it changes | what it costs | kind |
# |---|---|---|---|
# | every n-th layer | only some layers are recomputed | some memory back, for less recomputation | strategy |
# | boundary offload | layer inputs go to the host, logits stay | a copy of layers × tokens × hidden | strategy |
# | selective checkpointing | cheap operators run again, matrix products are kept | memory for the kept results | strategy |
# | chunked loss | the logits never exist all at once | the head runs twice | controlled variable |
# | optimizer flags | `foreach=False`: no full copy of the parameters | a slower step | controlled variable |
#
# The last two change the *task* that all strategies share. Comparing across them is a new experiment with a new label.
# %% [markdown] id="levers" lang="zh"
# ## 五个杠杆
#
# | 杠杆 | 改变什么 | 代价 | 性质 |
# |---|---|---|---|
# | 隔 n 层检查点 | 只重算一部分层 | 少算一些，多占一些内存 | 策略 |
# | 边界卸载 | 层输入搬到主机，logits 留下 | 多一次“层数 × token × 隐藏维”的拷贝 | 策略 |
# | 选择性检查点 | 便宜的算子重算，矩阵乘的结果留着 | 留下的结果要占内存 | 策略 |
# | 分块损失 | logits 从不同时全部存在 | 输出头要算两遍 | 受控变量 |
# | 优化器开关 | `foreach=False`：不再需要一整份参数副本 | 更新变慢 | 受控变量 |
#
# 最后两项改变的是所有策略共同的*任务*。跨它们做比较，就是一个新实验，要用新标签。
# %% [markdown] id="extra_intro" lang="en"
# ## Three that are built in
#
# Importing `strategies_extra` registered them. Where the installed transformers has a switch (every n-th layer), they use it.
#
# **Predict**, from most to least: bytes alive after forward under baseline, every 2nd layer, selective, checkpoint, boundary offload.
# %% [markdown] id="extra_intro" lang="zh"
# ## 三个现成的
#
# 导入 `strategies_extra` 时就已经注册好了。装着的 transformers 有开关的（隔 n 层），就用它的开关。
#
# **预测**：前向结束后存活的字节数，baseline、隔层、选择性、checkpoint、边界卸载，从多到少怎么排？
# %% id="extra_names" compare=true
for name in strategies.names():
    print(f"{name:22} {strategies.get(name).description}")

# %% id="extra_watch"
workload = experiment.load_experiment("tiny").workload


def watch(name):
    net = models.build_model(workload, "cpu")
    train_ids, _ = models.make_inputs(workload, net.config, "cpu")
    strategies.get(name).prepare(net)
    step = measure.TrainingStep(workload, strategies.get(name), net, train_ids)
    step()
    path, *_ = measure.observe_path(step)
    return path, strategies.get(name).check_path(path), measure.observe_memory(step)[1] / 2**20


# %% id="extra_table" compare=true
names = ["baseline", "every_2nd_layer", "selective_checkpoint", "checkpoint", "boundary_offload"]
widgets.show(widgets.Table(
    ["strategy", "recomputed", "packed", "after forward, MiB", "path problems"],
    [[name, f"{path.num_recomputed_regions} of {path.num_regions}", path.num_packed, alive, len(problems)]
     for name in names for path, problems, alive in [watch(name)]]))

# %% [markdown] id="extra_read" lang="en"
# **Read.** Between "all" and "nothing" lies a whole range. Every 2nd layer gives back half of the recomputation; selective checkpointing keeps what is dear to compute and drops what is cheap. Notice that counts alone cannot tell it from plain checkpointing: its path check also counts the operators whose results it kept, and that none of them ran again.
# %% [markdown] id="extra_read" lang="zh"
# **解读**：“全重算”和“全不算”之间，有很大的余地。隔层检查点把一半的重算还了回来；选择性检查点留下算起来贵的，丢掉便宜的。注意，单看重算次数分不出它和普通检查点：它的路径检查还会数留下了哪些算子的结果，并确认它们没有再跑一遍。
# %% [markdown] id="own_intro" lang="en"
# ## Your turn: a strategy of your own
#
# Offloading everything copies many tiny tensors for nothing. The one below moves only tensors of 256 KiB or more.
#
# | you write | what for |
# |---|---|
# | `name`, `description` | records and tables |
# | `prepare(model)` | a change made once, before the first step |
# | `step_context(model)` | what surrounds every forward |
# | `check_path(path)` | what the probe step must show; a list of problems, empty if it ran |
#
# Pack through `counted_hooks`: other hooks leave no counts, and a run without counts is no evidence.
# %% [markdown] id="own_intro" lang="zh"
# ## 轮到你：写一个自己的策略
#
# 什么都卸载，就会为许多很小的张量白白拷贝。下面这个策略只搬 256 KiB 及以上的张量。
#
# | 你要写 | 用来做什么 |
# |---|---|
# | `name`、`description` | 写进记录和表格 |
# | `prepare(model)` | 第一步之前对模型做一次性改动 |
# | `step_context(model)` | 包住每一次前向的上下文 |
# | `check_path(path)` | 探测步必须显示什么；返回问题列表，空表示真的跑了 |
#
# 打包要经过 `counted_hooks`：别的 hook 不留计数，而没有计数的运行不算证据。
# %% id="own_strategy"
class OffloadLarge(strategies.Strategy):
    name = "offload_large"
    description = "saved tensors of 256 KiB or more move to the host"

    def step_context(self, model):
        engine, limit = HostOffload(), 256 * 1024
        return counted_hooks(
            lambda saved: engine.pack(saved) if saved.nbytes >= limit else saved,
            lambda kept: kept if isinstance(kept, torch.Tensor) else engine.unpack(kept))

    def check_path(self, path):
        return [] if path.num_unpacked == path.num_packed > 0 else ["packed tensors must come back"]


own = strategies.register(OffloadLarge())

# %% id="own_watch" compare=true
path, problems, alive = watch("offload_large")
print("packed", path.num_packed, "unpacked", path.num_unpacked, "problems", problems)
print(f"alive after forward: {alive:.1f} MiB")

# %% [markdown] id="own_read" lang="en"
# **Read.** All saved tensors pass the hooks, but small ones are handed back as they are. Is this path check strict enough? A strategy that moved *nothing* would pass it too. Make it stricter: what in `path` tells that bytes really left the device?
# %% [markdown] id="own_read" lang="zh"
# **解读**：所有被保存的张量都经过了 hook，但小的原样交还。这个路径检查够严吗？一个*什么都没搬*的策略也能通过。把它改严：`path` 里有什么能说明字节真的离开了设备？
# %% [markdown] id="run_intro" lang="en"
# ## The same gates for all
#
# One experiment with seven strategies, three repeats each, interleaved, every run in a fresh process. Your strategy travels there with it.
#
# **Predict.** Which one will have the lowest peak? Which the best throughput among those that pass?
# %% [markdown] id="run_intro" lang="zh"
# ## 同样的门槛，一视同仁
#
# 一个实验，七种策略，各重复三次，交错执行，每次都在全新的进程里。你的策略会一起带过去。
#
# **预测**：谁的峰值最低？通过门槛的里面，谁的吞吐最好？
# %% id="run_g0"
LABEL = f"further-{datetime.now():%Y%m%d-%H%M%S}"
g0 = stages.g0(LABEL, preset="tiny", strategies=[*names, "offload", "offload_large"])
widgets.show_rows(g0["candidates"], ["name", "status", "execution_path_verified", "peak_memory_mb", "samples_per_s"])

# %% id="run_gates"
widgets.show(explorer.gates_table(g0))
print(explorer.decide(g0))

# %% id="run_facts" compare=true
rows = {row["name"]: row for row in g0["candidates"]}
print("path verified:", [name for name, row in rows.items() if row["execution_path_verified"]])
print("differs from the baseline's first step:", [name for name, row in rows.items() if row["step1_loss_difference"]])

# %% [markdown] id="run_read" lang="en"
# **Read.** With AdamW on `tiny` most of them meet at the optimizer's floor, so throughput decides. The strategies that keep more tensors are the faster ones *if* their own peak stays below that floor: memory above the floor is worth saving, memory below it is free.
# %% [markdown] id="run_read" lang="zh"
# **解读**：`tiny` 用 AdamW 时，大多数策略都碰到了优化器的下限，于是由吞吐决定胜负。留得多的策略跑得更快，*前提*是它自己的峰值还在这个下限之下：下限以上的内存值得省，下限以下的内存等于白送。
# %% [markdown] id="flags_intro" lang="en"
# ## The other two levers, predicted
#
# Chunked loss and optimizer flags change the task itself.
#
# **Predict.** Under checkpoint, which of the two lowers the peak of `tiny`? Think of the phase that sets it.
# %% [markdown] id="flags_intro" lang="zh"
# ## 另外两个杠杆：先预测
#
# 分块损失和优化器开关改变的是任务本身。
#
# **预测**：用 checkpoint 时，两者中哪个能降低 `tiny` 的峰值？想想峰值由哪个阶段决定。
# %% id="flags_predict" compare=true
adamw = workload.optimizer
variants = {
    "as it is": workload,
    "chunked loss": workload.replace(loss_head="chunked"),
    "foreach=False": workload.replace(optimizer={**adamw.model_dump(), "foreach": False}),
}
rows = []
for what, task in variants.items():
    found = estimate(task, strategies=["baseline", "checkpoint"], settings=TraceSettings(is_cpu=True))
    for item in found.strategies:
        rows.append([what, item.name, item.peak_allocated_bytes / 2**20, item.peak_phase])
widgets.show(widgets.Table(["task", "strategy", "peak, MiB", "set in"], rows))

# %% [markdown] id="flags_read" lang="en"
# **Read.** A lever moves a peak only in the phase it acts on; over a vocabulary as small as `tiny`'s, chunking even costs a little. Find the phase first (03, 05), then choose. To adopt one of these, measure both tasks: `memstrat g0 --loss-head chunked` or `--no-foreach`, each under its own label and against its *own* baseline.
# %% [markdown] id="flags_read" lang="zh"
# **解读**：杠杆只能撬动它所在阶段的峰值；`tiny` 的词表这么小，分块甚至还要多占一点。先找到阶段（03、05），再选杠杆。真要采用其中一个，就把两个任务都测一遍：`memstrat g0 --loss-head chunked` 或 `--no-foreach`，各用各的标签，各和*自己的*基线比。
# %% [markdown] id="limits" lang="en"
# ## Limits
#
# * `tiny` shows mechanisms. What a kept matrix product is worth depends on the GPU and on the length.
# * Overlapped offload (its own stream, pinned buffers, prefetch) is a different engine: subclass `HostOffload` and measure it like any other.
# * A path check is only as strict as you write it.
#
# ## Next
#
# Take your own model: `memstrat g0 --model FOLDER --memory-cap-mb ...`, and defend the record.
# %% [markdown] id="limits" lang="zh"
# ## 局限
#
# * `tiny` 展示的是机制。留住一次矩阵乘值多少，取决于 GPU 和长度。
# * 与计算重叠的卸载（独立的 stream、锁页缓冲区、预取）是另一种引擎：继承 `HostOffload`，然后像别的策略一样测量它。
# * 路径检查有多严，全看你怎么写。
#
# ## 下一步
#
# 换上你自己的模型：`memstrat g0 --model FOLDER --memory-cap-mb ...`，然后为这份记录辩护。
