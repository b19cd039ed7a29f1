# %% [markdown] id="title" lang="en"
# # Which tensors does autograd keep, and what do checkpoint, offload and hybrid do with them?
#
# {badges}
#
# **You will know** what backward needs from forward, layer by layer; how to count those bytes with pencil and paper; what each strategy does with them, shown by counts and not by trust; and why a strategy can work perfectly and still leave the peak where it was.
#
# **Needs** about 45 minutes. A CPU with torch is enough: nothing is downloaded, and the memory effect you will see is real, counted tensor by tensor.
# %% [markdown] id="title" lang="zh"
# # autograd 会保存哪些张量？checkpoint、offload、hybrid 又拿它们怎么办？
#
# {badges}
#
# **学完你会知道**：反向传播到底需要前向的什么，一层一层说清楚；怎样用纸笔把这些字节数出来；每种策略对它们做了什么（看计数，不靠相信）；以及为什么一个策略完全生效了，峰值却可以纹丝不动。
#
# **需要**：约 45 分钟。有 torch 的 CPU 就够了：不下载任何东西，看到的内存效果是真实的，一个张量一个张量数出来的。
# %% id="first_cell" kind="first"
# %% id="imports"
import memstrat
import torch
from memstrat import autograd_check, experiment, measure, models, plots, strategies, widgets
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

# %% [markdown] id="look" lang="en"
# ## Look at the tape
#
# During forward, autograd stores the tensors that backward will read: the *saved tensors*. A pair of hooks sees each of them go in (`pack`) and come out (`unpack`).
#
# The network below is `Linear(8, 16)`, `Linear(16, 4)`, with a batch of 2 and the mean of squares as loss.
#
# **Predict.** How many tensors are saved? Is the weight of the first layer among them? Of the second?
# %% [markdown] id="look" lang="zh"
# ## 看看这条“磁带”
#
# 前向过程中，autograd 会把反向要读的张量存下来，这就是*被保存的张量*（saved tensors）。一对 hook 能看到每一个存进去（`pack`）、取出来（`unpack`）。
#
# 下面的网络是 `Linear(8, 16)` 接 `Linear(16, 4)`，批大小 2，损失是平方的均值。
#
# **预测**：一共保存几个张量？第一层的权重在里面吗？第二层的呢？
# %% id="look_run" compare=true
torch.manual_seed(42)
model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
inputs = torch.randn(2, 8)
saved = []


def note_and_keep(tensor):
    saved.append(tuple(tensor.shape))
    return tensor


with saved_tensors_hooks(note_and_keep, lambda tensor: tensor):
    loss = model(inputs).pow(2).mean()
print(saved)
print(len(saved), "tensors,", sum(rows * columns for rows, columns in saved), "elements")

# %% [markdown] id="look_read" lang="en"
# **Read.** Four tensors, each for a reason:
#
# | saved | shape | backward needs it for |
# |---|---|---|
# | input of layer 1 | (2, 8) | the gradient of layer 1's weight |
# | input of layer 2 | (2, 16) | the gradient of layer 2's weight |
# | weight of layer 2 | (16, 4) | the gradient of layer 2's *input* |
# | output | (2, 4) | the derivative of the square |
#
# Layer 1's weight is missing: it would serve only the gradient of the network's input, and nobody asked for that. The weight of layer 2 is listed but costs nothing, since the parameter is in memory anyway.
# %% [markdown] id="look_read" lang="zh"
# **解读**：四个张量，各有各的理由：
#
# | 保存的是 | 形状 | 反向拿它做什么 |
# |---|---|---|
# | 第 1 层的输入 | (2, 8) | 算第 1 层权重的梯度 |
# | 第 2 层的输入 | (2, 16) | 算第 2 层权重的梯度 |
# | 第 2 层的权重 | (16, 4) | 算第 2 层*输入*的梯度 |
# | 输出 | (2, 4) | 平方的导数 |
#
# 第 1 层的权重不在其中：它只对网络输入的梯度有用，而没人要这个梯度。第 2 层的权重虽然在列，却不多占内存，因为参数本来就在那里。
# %% [markdown] id="bytes_intro" lang="en"
# ## Exercise 1: count the bytes by hand
#
# `count_saved_bytes(batch_size, widths, activation, element_bytes)` returns the bytes of distinct storages that autograd keeps for a chain of linear layers. Parameters do not count.
#
# | in | out |
# |---|---|
# | `2, [8, 16, 4], "none", 4` | 224: elements 16 + 32 + 8, four bytes each |
# | the same with `"relu"` | 224 again |
# | the same with `"gelu"` | 352 |
#
# **Predict**, on paper, why ReLU is free and GELU is not, before you write a line.
# %% [markdown] id="bytes_intro" lang="zh"
# ## 练习 1：用手数字节
#
# `count_saved_bytes(batch_size, widths, activation, element_bytes)` 返回 autograd 为一串线性层保存的字节数；同一块存储只算一次，参数不算。
#
# | 输入 | 输出 |
# |---|---|
# | `2, [8, 16, 4], "none", 4` | 224：元素 16 + 32 + 8，每个 4 字节 |
# | 同上，换成 `"relu"` | 还是 224 |
# | 同上，换成 `"gelu"` | 352 |
#
# **预测**：动手写之前先在纸上想清楚，为什么 ReLU 不多占，GELU 却要多占。
# %% [markdown] id="bytes_hints" lang="en"
# <details><summary>Hint 1: a nudge</summary>
#
# ReLU's derivative can be read off its *output* (is it positive?). GELU's needs the *input*. What does the next linear layer keep?
# </details>
# <details><summary>Hint 2: an approach</summary>
#
# Go through the widths: the first is the input of a layer, the last is what the loss keeps. Each hidden width is kept once as the next layer's input, and a second time only if the activation keeps something else.
# </details>
# %% [markdown] id="bytes_hints" lang="zh"
# <details><summary>提示 1：点一下</summary>
#
# ReLU 的导数看*输出*就知道（是不是正的）。GELU 的导数要看*输入*。那么下一个线性层保存的是什么？
# </details>
# <details><summary>提示 2：思路</summary>
#
# 沿着宽度走一遍：第一个是某层的输入，最后一个是损失要保存的。每个隐藏宽度都会作为下一层的输入保存一次；只有激活函数另外还要存别的东西时，才再加一次。
# </details>
# %% [markdown] id="bytes_stop" lang="en" only="solution"
# ---
# **Stop.** The solution of exercise 1 follows.
#
# ---
# %% [markdown] id="bytes_stop" lang="zh" only="solution"
# ---
# **停一下。** 下面是练习 1 的答案。
#
# ---
# %% id="ex_saved_bytes" kind="exercise"
def count_saved_bytes(batch_size, widths, activation, element_bytes):
    """
    [en] {contract}
    [zh] 用手数：一个小网络为了反向传播，让 autograd 保存了多少字节。
    [zh]
    [zh] 网络：先是 `Linear(widths[0], widths[1])`，之后每多一个宽度，就加一个激活函数和一个 `Linear`；
    [zh] 损失是 `output.pow(2).mean()`。输入不需要梯度。
    [zh]
    [zh] 保存什么：`Linear` 保存输入，ReLU 保存输出，GELU 保存输入，`pow` 保存输入。
    [zh] 怎么数：同一块存储只算一次，不管有几个算子保存它（ReLU 的输出就是下一层的输入）。
    [zh] 不算什么：参数，它们本来就在内存里。
    [zh]
    [zh] 参数：
    [zh]     batch_size：输入的行数。
    [zh]     widths：至少两个层宽（元素数），输入在前，输出在后。
    [zh]     activation：`none`、`relu` 或 `gelu`；放在层与层之间，最后一层之后没有。
    [zh]     element_bytes：一个元素的字节数，float32 为 4，bfloat16 为 2。
    [zh]
    [zh] 返回：
    [zh]     字节数，整数。
    """
    ### BEGIN SOLUTION
    copies_of_hidden = 2 if activation == "gelu" else 1
    elements = widths[0] + copies_of_hidden * sum(widths[1:-1]) + widths[-1]
    return batch_size * elements * element_bytes
    ### END SOLUTION


# %% id="test_ex_saved_bytes" kind="check" points=2
memstrat.check("ex_saved_bytes", count_saved_bytes)

# %% [markdown] id="bytes_why" lang="en" only="solution"
# **Mechanism.** Each linear layer keeps its input, the loss keeps the output. ReLU keeps its output, which *is* the next layer's input: one storage, counted once. GELU keeps its input besides.
#
# **Invariant.** Bytes grow linearly with batch and with element size, and depth counts through the hidden widths only. Nothing depends on the number of parameters.
#
# **Test evidence.** The check builds each random network in torch, catches what autograd really saves, and compares distinct storages. Forgetting the loss, counting a weight, or counting ReLU twice is off by exactly that tensor.
# %% [markdown] id="bytes_why" lang="zh" only="solution"
# **机制**：每个线性层保存自己的输入，损失保存输出。ReLU 保存的是输出，而它*就是*下一层的输入：同一块存储，只算一次。GELU 则要额外保存它的输入。
#
# **不变量**：字节数与批大小、元素大小成正比，深度只通过隐藏宽度起作用，与参数量无关。
#
# **测试证据**：检查会在 torch 里把每个随机网络真的搭出来，截住 autograd 实际保存的张量，按不同的存储比较。漏了损失、数了权重、把 ReLU 数了两遍，差的正好就是那个张量。
# %% [markdown] id="lifecycle" lang="en"
# ## Four lives of a saved tensor
#
# | strategy | after forward | until backward | when backward needs it | the price |
# |---|---|---|---|---|
# | `baseline` | stays on the device | waits there | is read | capacity |
# | `checkpoint` | inside a region only the region's input stays | the rest does not exist | the region's forward runs again | compute |
# | `offload` | moves to the host | waits on the host | is copied back | transfer and waiting |
# | `hybrid` | region inputs, and what is saved outside regions, move to the host | the rest does not exist | copied back, then recomputed | both |
#
# A *region* is one decoder layer. Checkpointing is also called gradient checkpointing; the idea is *recomputation*.
# %% [markdown] id="lifecycle" lang="zh"
# ## 一个被保存张量的四种命运
#
# | 策略 | 前向之后 | 反向用到之前 | 反向要用时 | 代价 |
# |---|---|---|---|---|
# | `baseline` | 留在设备上 | 在设备上等着 | 直接读 | 容量 |
# | `checkpoint` | 区域内只留区域的输入 | 其余的不存在 | 把区域的前向再跑一遍 | 计算 |
# | `offload` | 搬到主机内存 | 在主机上等着 | 拷贝回来 | 传输和等待 |
# | `hybrid` | 区域输入、以及区域之外保存的张量，搬到主机 | 其余的不存在 | 先拷回来，再重算 | 两者都有 |
#
# 一个*区域*（region）就是一个解码器层。激活检查点也叫梯度检查点，核心思想是*重算*。
# %% [markdown] id="toy_intro" lang="en"
# ## Same training, other tape
#
# A strategy may change where tensors wait. It must not change what is computed. The check below runs the very strategy objects that notebook 04 measures, on two toys, and compares output, loss and every gradient with the baseline's.
#
# The second toy has a region `Linear, GELU, Linear` with something to drop. Its baseline keeps 264 elements in place.
#
# **Predict** for the second toy: how many elements stay in place under checkpoint? Under offload? How many tensors does hybrid pack?
# %% [markdown] id="toy_intro" lang="zh"
# ## 训练不变，变的是磁带
#
# 策略可以改变张量在哪里等，但不能改变算出来的东西。下面的检查用的就是 04 要测量的那些策略对象，在两个玩具网络上跑，把输出、损失和每个梯度都拿来和基线比。
#
# 第二个玩具有一个区域 `Linear, GELU, Linear`，里面有东西可丢。基线在原地保留 264 个元素。
#
# **预测**（第二个玩具）：checkpoint 下还有多少元素留在原地？offload 下呢？hybrid 会打包几个张量？
# %% id="cpu_autograd_check" compare=true
results = autograd_check.check_cpu_strategies()
widgets.show(widgets.Table(
    ["strategy", "left in place", "packed", "unpacked", "recomputed regions", "problems"],
    [[result.name, result.kept_numel, result.path.num_packed, result.path.num_unpacked,
      f"{result.path.num_recomputed_regions} of {result.path.num_regions}", len(result.problems)]
     for result in results]))
assert all(result.is_ok for result in results), [result.problems for result in results]

# %% [markdown] id="toy_read" lang="en"
# **Read.** Checkpoint packs nothing and recomputes the one region: 72 elements remain, namely the region's input, and what the layer behind it and the loss keep. Offload moves all seven saved tensors and recomputes nothing. Hybrid does both: it packs four, none inside the region, and recomputes.
#
# These counts are the *path evidence*. Every run you measure later carries them, and a run whose counts contradict its strategy's rule is no evidence, however good its peak.
#
# Passing proves semantics. It says nothing about savings: toys have nothing to save.
# %% [markdown] id="toy_read" lang="zh"
# **解读**：checkpoint 什么都不打包，重算了唯一的区域：剩下 72 个元素，就是区域的输入，加上后面那层和损失保存的。offload 搬走全部七个被保存的张量，不做重算。hybrid 两样都做：打包四个，没有一个在区域内，并且重算。
#
# 这些计数就是*路径证据*。以后测的每次运行都带着它；计数和策略的规则对不上的运行，峰值再漂亮也不算证据。
#
# 通过检查，证明的是语义，不是节省：玩具网络没什么可省的。
# %% [markdown] id="identity_intro" lang="en"
# ## A strategy that does nothing
#
# `Quiet` below claims to keep less, brings a path rule that never objects, and changes nothing.
#
# **Predict.** Output, loss and gradients will equal the baseline's exactly. What can give it away?
# %% [markdown] id="identity_intro" lang="zh"
# ## 一个什么都不做的策略
#
# 下面的 `Quiet` 号称能少留张量，自带一条从不反对的路径规则，实际上什么都没改。
#
# **预测**：它的输出、损失、梯度都会和基线完全一致。那凭什么识破它？
# %% id="identity_run" compare=true
class Quiet(strategies.Strategy):
    name = "quiet"
    description = "claims to keep less"

    def check_path(self, path):
        return []


for problem in autograd_check.check_cpu_strategy(Quiet()).problems:
    print(problem)

# %% [markdown] id="hooks_intro" lang="en"
# ## Exercise 2: write the pair yourself
#
# `make_host_hooks()` returns `(pack, unpack)` for `saved_tensors_hooks`.
#
# | function | in | out |
# |---|---|---|
# | `pack` | a saved tensor | whatever `unpack` needs; holds a *real copy* on the host |
# | `unpack` | what `pack` returned | a tensor with the first one's device, dtype, shape and values |
#
# A trap comes first.
#
# **Predict.** On a CPU tensor, does `tensor.cpu()` give you another tensor?
# %% [markdown] id="hooks_intro" lang="zh"
# ## 练习 2：自己写这一对
#
# `make_host_hooks()` 返回给 `saved_tensors_hooks` 用的 `(pack, unpack)`。
#
# | 函数 | 输入 | 输出 |
# |---|---|---|
# | `pack` | 一个要保存的张量 | `unpack` 需要的任何东西；里面是主机上的一份*真实拷贝* |
# | `unpack` | `pack` 的返回值 | 一个张量，设备、dtype、形状、数值与原来的一致 |
#
# 先看一个坑。
#
# **预测**：对 CPU 上的张量调用 `tensor.cpu()`，得到的是另一个张量吗？
# %% id="hooks_trap" compare=true
tensor = torch.arange(3.0)
print("cpu() gives the same object:", tensor.cpu() is tensor)
print("to('cpu', copy=True) does:  ", tensor.to("cpu", copy=True) is tensor)

# %% [markdown] id="hooks_hints" lang="en"
# <details><summary>Hint 1: a nudge</summary>
#
# On a CPU, torch's own `save_on_cpu` copies nothing at all, for the reason you just saw. What has to be remembered besides the values, so that the tensor can go back where it came from?
# </details>
# <details><summary>Hint 2: an approach</summary>
#
# Return two inner functions. `pack` detaches, copies with `copy=True`, and returns device and copy together. `unpack` moves the copy to that device. Keep nothing between calls: packs are interleaved, and one may be unpacked twice.
# </details>
# %% [markdown] id="hooks_hints" lang="zh"
# <details><summary>提示 1：点一下</summary>
#
# 在 CPU 上，torch 自带的 `save_on_cpu` 其实什么都没拷贝，原因你刚刚看到了。除了数值，还要记住什么，张量才能回到它来的地方？
# </details>
# <details><summary>提示 2：思路</summary>
#
# 返回两个内部函数。`pack` 先 detach，再用 `copy=True` 拷贝，把设备和拷贝一起返回；`unpack` 把拷贝送回那个设备。两次调用之间不要留任何状态：打包会交错进行，同一个包也可能被解两次。
# </details>
# %% [markdown] id="hooks_stop" lang="en" only="solution"
# ---
# **Stop.** The solution of exercise 2 follows.
#
# ---
# %% [markdown] id="hooks_stop" lang="zh" only="solution"
# ---
# **停一下。** 下面是练习 2 的答案。
#
# ---
# %% id="ex_pack_unpack" kind="exercise"
def make_host_hooks():
    """
    [en] {contract}
    [zh] 写一对给 `torch.autograd.graph.saved_tensors_hooks` 用的 hook，把张量存到主机内存。
    [zh]
    [zh] 返回：
    [zh]     `(pack, unpack)`:
    [zh]
    [zh]     * `pack(tensor)` 返回 `unpack` 需要的任何东西。它保存的是主机内存里的一份真实拷贝：
    [zh]       与原张量不共享存储，张量本来就在 CPU 上时也一样。
    [zh]     * `unpack(packed)` 返回一个张量，设备、dtype、形状和数值与打包的那个一致。
    [zh]       可以调用不止一次，顺序任意。
    [zh]
    [zh] 它们不保留梯度历史；整数、bool 和不连续的张量也能打包。
    """
    ### BEGIN SOLUTION
    def pack(tensor):
        return tensor.device, tensor.detach().to("cpu", copy=True)

    def unpack(packed):
        device, host_copy = packed
        return host_copy.to(device)

    return pack, unpack
    ### END SOLUTION


# %% id="test_ex_pack_unpack" kind="check" points=2
memstrat.check("ex_pack_unpack", make_host_hooks)

# %% [markdown] id="hooks_why" lang="en" only="solution"
# **Mechanism.** All state travels in the packed value, so order and number of unpacks do not matter. `copy=True` is what makes the host copy real on a CPU; on a GPU `.to("cpu")` would copy anyway. `detach` keeps the copy itself out of the graph.
#
# **Invariant.** After `pack` nothing refers to the device tensor any more, which is the whole point: as long as one reference is left, its bytes are not freed.
#
# **Test evidence.** The check looks at storages, not at values alone, so an identity pair and a plain `.cpu()` fail; it changes dtypes and strides, interleaves packs, and runs one real backward.
# %% [markdown] id="hooks_why" lang="zh" only="solution"
# **机制**：所有状态都放在打包的返回值里，所以解包的顺序和次数都无所谓。`copy=True` 保证在 CPU 上也是真实拷贝；在 GPU 上，`.to("cpu")` 本来就会拷贝。`detach` 让这份拷贝不进计算图。
#
# **不变量**：`pack` 之后不再有任何东西引用设备上的张量。这才是关键：只要还剩一个引用，那些字节就不会释放。
#
# **测试证据**：检查看的是存储，不只是数值，所以原样返回和单纯的 `.cpu()` 都过不了；它还会换 dtype 和步长、交错打包，并真的跑一次反向。
# %% [markdown] id="memory_intro" lang="en"
# ## A real effect, on a CPU
#
# Now a real model: `tiny`, four Qwen2 layers, 1.2 million parameters, sequence length 256, AdamW. A dispatch mode counts the bytes of every live tensor, as if the CPU were the device. Offloaded tensors are really copied, and counted as host memory.
#
# **Predict**, as an order from most to least: bytes alive after forward, for the four strategies. Then a second one: the highest point of the whole step.
# %% [markdown] id="memory_intro" lang="zh"
# ## 在 CPU 上看到真实效果
#
# 现在换成真正的模型 `tiny`：四层 Qwen2，120 万参数，序列长度 256，AdamW。一个 dispatch mode 会统计每个存活张量的字节数，把 CPU 当成设备来看；卸载的张量是真拷贝，记在主机内存名下。
#
# **预测**：四种策略在前向结束后存活的字节数，从多到少怎么排？再预测一个：整个训练步里的最高点怎么排？
# %% id="memory_measure"
workload = experiment.load_experiment("tiny").workload


def watch_one_step(name):
    net = models.build_model(workload, "cpu")
    train_ids, _ = models.make_inputs(workload, net.config, "cpu")
    strategies.get(name).prepare(net)
    step = measure.TrainingStep(workload, strategies.get(name), net, train_ids)
    step()  # AdamW's state appears in the first step
    return measure.observe_memory(step)


watched = {name: watch_one_step(name) for name in workload.strategies}

# %% id="memory_table" compare=true
widgets.show(widgets.Table(
    ["strategy", "after forward, MiB", "host peak, MiB"],
    [[name, resident / 2**20, max(phase.host_peak_bytes for phase in phases.values()) / 2**20]
     for name, (phases, resident) in watched.items()]))

# %% id="memory_figure"
rows = [{"name": name, "runs": [{
    "status": "ok", "memory_source": "tensor_accounting", "resident_after_forward_bytes": resident,
    "phases": {phase: found.model_dump() for phase, found in phases.items()}}]}
    for name, (phases, resident) in watched.items()]
widgets.show_drawing(plots.plot_phases({"run_mode": "cpu_rehearsal", "candidates": rows}, widgets.language()))

# %% [markdown] id="memory_read" lang="en"
# **Read.** After forward, the strategies differ by more than a factor of two; the mechanism works. Yet checkpoint, offload and hybrid share one highest point, to the byte. It lies in the *optimizer* phase: parameters, gradients, two AdamW moments, and one more copy that the `foreach` path needs. By then no saved tensor is left, so no strategy on saved tensors can touch it.
#
# This is not an artefact of a tiny model. On the public GPU figures of Qwen2.5-0.5B the same three strategies all read about 9,450 MiB, for this reason. Notebook 03 predicts it.
# %% [markdown] id="memory_read" lang="zh"
# **解读**：前向之后，各策略相差不止一倍，机制确实有效。可是 checkpoint、offload、hybrid 的最高点完全一样，一个字节都不差。它出现在*优化器*阶段：参数、梯度、AdamW 的两份动量，再加上 `foreach` 实现要用的一份副本。这时被保存的张量一个都不剩，只动它们的策略自然碰不到这个峰值。
#
# 这不是小模型造成的假象。公开的 Qwen2.5-0.5B GPU 数据里，这三种策略都在 9,450 MiB 左右，正是同一个原因。03 会把它预测出来。
# %% [markdown] id="limits" lang="en"
# ## Limits
#
# * Counting live tensors misses scratch memory inside kernels and what an allocator rounds up. On a GPU three numbers exist: allocated, reserved, and what the driver shows.
# * On a CPU, offload copies within one memory. The device tier shrinks, the machine's memory does not; time here says nothing about PCIe.
# * Only the innermost pair of hooks acts. Offload *around* checkpoint packs one tensor a region; offload *inside* one packs everything and makes the checkpoint inert.
#
# ## Next
#
# 02 asks when two runs may be compared at all, before anyone subtracts one peak from another.
# %% [markdown] id="limits" lang="zh"
# ## 局限
#
# * 数存活张量，数不到算子内部的临时空间，也数不到分配器的取整。在 GPU 上有三个数：已分配、预留、驱动显示的占用。
# * 在 CPU 上，offload 只是在同一块内存里拷贝：设备那一层变小了，整机内存并没有；这里的时间也完全不能代表 PCIe。
# * 只有最内层的一对 hook 起作用。offload 包在 checkpoint *外面*，每个区域打包一个张量；放在*里面*，就会打包全部，checkpoint 形同虚设。
#
# ## 下一步
#
# 02 要问的是：在拿一个峰值去减另一个之前，两次运行到底能不能比。
