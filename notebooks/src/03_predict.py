# %% [markdown] id="title" lang="en"
# # What would it peak at on a GPU I do not have, and why?
#
# {badges}
#
# **You will know** which part of the peak no activation strategy can touch, computed on paper; how one training step can be acted out on tensors that hold no data; which phase and which category set the peak; and the longest sequence that fits a card, before you rent one.
#
# **Needs** about 30 minutes. Any CPU with torch: no GPU, no download, less than a gigabyte of memory. The predictions take about a minute in all.
# %% [markdown] id="title" lang="zh"
# # 在一块手边没有的 GPU 上，峰值会是多少？为什么？
#
# {badges}
#
# **学完你会知道**：峰值里哪一部分是任何激活策略都动不了的，用纸笔就能算；怎样用不含数据的张量把一个训练步“演”一遍；峰值由哪个阶段、哪一类内存决定；以及在租卡之前，就知道它放得下多长的序列。
#
# **需要**：约 30 分钟。有 torch 的 CPU 就行：不需要 GPU，不下载，内存不到 1 GB。所有预测加起来约一分钟。
# %% id="first_cell" kind="first"
# %% id="imports"
import memstrat
from memstrat import experiment, models, widgets
from memstrat.estimate import estimate, find_device
from memstrat.estimate.advice import advise
from memstrat.estimate.search import find_longest
from memstrat.plots.estimate import plot_categories

# %% [markdown] id="paper" lang="en"
# ## With paper first
#
# Qwen2.5-0.5B has 494,032,768 parameters. In fp32 that is 1,884.6 MiB of weights. During AdamW's step these are alive together:
#
# | what | size | why |
# |---|---|---|
# | parameters | 1 × | they are being updated |
# | gradients | 1 × | they say how |
# | two moments | 2 × | AdamW's memory |
# | temporaries | 1 × with `foreach` | one call for all tensors needs one more copy of them |
#
# **Predict**, on paper: the sum in MiB. A public course measured about 9,450 MiB for checkpoint, offload and hybrid alike on a 12 GiB card. How far are you off?
# %% [markdown] id="paper" lang="zh"
# ## 先用纸笔
#
# Qwen2.5-0.5B 有 494,032,768 个参数，fp32 下权重是 1,884.6 MiB。AdamW 更新的那一刻，下面这些同时存活：
#
# | 内容 | 大小 | 原因 |
# |---|---|---|
# | 参数 | 1 × | 正在被更新 |
# | 梯度 | 1 × | 告诉它怎么更新 |
# | 两份动量 | 2 × | AdamW 的状态 |
# | 临时量 | 用 `foreach` 时 1 × | 一次调用处理所有张量，要再多一份副本 |
#
# **预测**（在纸上）：加起来是多少 MiB？一门公开课程在 12 GiB 的卡上测得，checkpoint、offload、hybrid 都在 9,450 MiB 左右。你算的差多少？
# %% [markdown] id="floor_intro" lang="en"
# ## Exercise: the floor of the optimizer phase
#
# `floor_of_optimizer_phase(parameter_numels, element_bytes, optimizer, foreach)` returns what `optimizer.step()` needs whatever is done about activations.
#
# | in | out |
# |---|---|
# | `[100, 50], 4, "AdamW", True` | parameters 600, gradients 600, moments 1200, temporaries 600, floor 3000 |
# | the same with `foreach` False | temporaries 800 (twice the largest tensor), floor 3200 |
# | `"SGD"` without momentum | moments 0, temporaries 0, floor 1200 |
#
# Notice the second line: for a handful of tensors `foreach=False` is not the cheaper one.
# %% [markdown] id="floor_intro" lang="zh"
# ## 练习：优化器阶段的下限
#
# `floor_of_optimizer_phase(parameter_numels, element_bytes, optimizer, foreach)` 返回 `optimizer.step()` 无论如何都需要的字节数，不管激活怎么处理。
#
# | 输入 | 输出 |
# |---|---|
# | `[100, 50], 4, "AdamW", True` | 参数 600，梯度 600，动量 1200，临时量 600，下限 3000 |
# | 同上，`foreach` 为 False | 临时量 800（最大张量的两倍），下限 3200 |
# | 不带动量的 `"SGD"` | 动量 0，临时量 0，下限 1200 |
#
# 注意第二行：张量很少的时候，`foreach=False` 并不更省。
# %% [markdown] id="floor_hints" lang="en"
# <details><summary>Hint 1: a nudge</summary>
#
# Which of the four parts depend on the optimizer, and which only on the parameters?
# </details>
# <details><summary>Hint 2: an approach</summary>
#
# Compute the parameters' bytes once. Gradients equal them. Moments are twice that or nothing. Temporaries have three cases. Sum last, from the parts you return.
# </details>
# %% [markdown] id="floor_hints" lang="zh"
# <details><summary>提示 1：点一下</summary>
#
# 这四部分里，哪些取决于优化器，哪些只取决于参数？
# </details>
# <details><summary>提示 2：思路</summary>
#
# 参数的字节数只算一次，梯度与它相等，动量是它的两倍或者零，临时量分三种情况。最后用你要返回的那几部分求和。
# </details>
# %% [markdown] id="floor_stop" lang="en" only="solution"
# ---
# **Stop.** The solution of the exercise follows.
#
# ---
# %% [markdown] id="floor_stop" lang="zh" only="solution"
# ---
# **停一下。** 下面是练习的答案。
#
# ---
# %% id="ex_peak_floor" kind="exercise"
def floor_of_optimizer_phase(parameter_numels, element_bytes, optimizer, foreach):
    """
    [en] {contract}
    [zh] `optimizer.step()` 需要的字节数，不管激活怎么处理。
    [zh]
    [zh] 到这一步，被保存的张量已经一个不剩，所以 checkpoint、offload、hybrid 都不可能低于这个下限。
    [zh] AdamW 的 `step` 计数器（每个张量几个字节）不算在内。
    [zh]
    [zh] 参数：
    [zh]     parameter_numels：每个参数张量的元素数；绑定（tied）的张量只列一次。
    [zh]     element_bytes：一个元素的字节数，参数、梯度、动量相同。
    [zh]     optimizer：`AdamW`，或 `SGD`（不带动量）。
    [zh]     foreach：优化器是否一次调用就更新所有张量。
    [zh]
    [zh] 返回：
    [zh]     `parameters_bytes`、`gradients_bytes`；`moments_bytes`：AdamW 每个参数两份，SGD 没有；
    [zh]     `temporaries_bytes`：AdamW 用 `foreach` 时是全部参数的一份副本，不用时是最大张量的两倍，
    [zh]     SGD 没有；`floor_bytes`：以上四项之和。
    """
    ### BEGIN SOLUTION
    parameters = sum(parameter_numels) * element_bytes
    temporaries = parameters if foreach else 2 * max(parameter_numels, default=0) * element_bytes
    is_adamw = optimizer == "AdamW"
    parts = {
        "parameters_bytes": parameters,
        "gradients_bytes": parameters,
        "moments_bytes": 2 * parameters if is_adamw else 0,
        "temporaries_bytes": temporaries if is_adamw else 0,
    }
    return {**parts, "floor_bytes": sum(parts.values())}
    ### END SOLUTION


# %% id="test_ex_peak_floor" kind="check" points=2
memstrat.check("ex_peak_floor", floor_of_optimizer_phase)

# %% [markdown] id="floor_why" lang="en" only="solution"
# **Mechanism.** Everything follows from the number of parameters; sequence length and batch do not appear. That is the point: no strategy on saved tensors can lower this number.
#
# **Invariant.** `floor_bytes` is the sum of the four parts, whatever the optimizer. With `foreach` it is five times the parameters for AdamW and twice for SGD.
#
# **Test evidence.** The check varies sizes, so a constant factor of 5 fails without `foreach`; a tied tensor counted twice, or moments given to SGD, are caught by name.
# %% [markdown] id="floor_why" lang="zh" only="solution"
# **机制**：一切都由参数量推出，序列长度和批大小根本没有出现。这正是要点：只动被保存张量的策略，没有一种能降低这个数。
#
# **不变量**：不管用什么优化器，`floor_bytes` 都是四项之和。用 `foreach` 时，AdamW 是参数的五倍，SGD 是两倍。
#
# **测试证据**：检查会换不同的大小，所以不用 `foreach` 时写死五倍会失败；把绑定的张量数两遍、给 SGD 加上动量，都会被点名抓住。
# %% [markdown] id="floor_use_intro" lang="en"
# ## Your floor for the real model
#
# The model below exists on the `meta` device: shapes, no data.
# %% [markdown] id="floor_use_intro" lang="zh"
# ## 真实模型的下限
#
# 下面的模型建在 `meta` 设备上：只有形状，没有数据。
# %% id="floor_use" compare=true
workload = experiment.load_experiment("pressure", weights="random").workload
meta_model = models.build_model(workload, "meta")
numels = [parameter.numel() for parameter in meta_model.parameters()]
print(f"{sum(numels):,} parameters in {len(numels)} tensors")
if widgets.all_done("ex_peak_floor"):
    for foreach in (True, False):
        floor = floor_of_optimizer_phase(numels, 4, "AdamW", foreach)
        print(f"foreach={foreach}: floor {floor['floor_bytes'] / 2**20:,.1f} MiB")

# %% [markdown] id="floor_read" lang="en"
# **Read.** 9,423 MiB, against about 9,450 measured: the optimizer alone explains the peak of three strategies to 0.3 %. And one flag, not a strategy, is the lever.
# %% [markdown] id="floor_read" lang="zh"
# **解读**：9,423 MiB，实测约 9,450 MiB。单凭优化器，就把三种策略的峰值解释到了 0.3 % 以内。真正的杠杆是一个开关，而不是某种策略。
# %% [markdown] id="predict_intro" lang="en"
# ## The whole step, acted out
#
# `estimate` runs one real training step of the model under each strategy on `meta` tensors, logs when each storage appears and vanishes, and replays the log through a model of the CUDA caching allocator.
#
# **Predict.** Which phase sets the baseline's peak, and which the others'?
# %% [markdown] id="predict_intro" lang="zh"
# ## 把整个训练步演一遍
#
# `estimate` 用 `meta` 张量，在每种策略下把模型的一个训练步真正走一遍，记录每块存储何时出现、何时消失，再放进 CUDA 缓存分配器的模型里重放。
#
# **预测**：基线的峰值出现在哪个阶段？其他策略呢？
# %% id="predict_run"
card = find_device("RTX 5070 Ti Laptop")
predicted = estimate(workload, device=card)

# %% id="predict_table" compare=true
measured = {row["name"]: row["peak_memory_mb"] for row in widgets.reference_record("public", "g0")["candidates"]}
widgets.show(widgets.Table(
    ["strategy", "predicted, MiB", "measured elsewhere, MiB", "difference, %", "set in"],
    [[item.name, round(item.peak_allocated_bytes / 2**20), round(measured[item.name]),
      f"{100 * (item.peak_allocated_bytes / 2**20 / measured[item.name] - 1):+.1f}", item.peak_phase]
     for item in predicted.strategies]))

# %% id="predict_figure"
drawing = plot_categories(predicted.record(), widgets.language())
widgets.show_drawing(drawing, ["strategy", "phase", "is_peak", "peak_allocated_mib"])

# %% [markdown] id="predict_read" lang="en"
# **Read.** The right-hand figures were measured by a public course on that card, not by this project; the prediction never saw them. Backward sets the baseline's peak, the optimizer step the others'. Peak *reserved* is less certain: it depends on where the driver puts segments, so the estimate gives a range for it.
# %% [markdown] id="predict_read" lang="zh"
# **解读**：右边的数字是一门公开课程在那块卡上测的，不是本项目测的；预测时没有用到它们。基线的峰值由反向决定，其他策略由优化器更新决定。*预留*峰值没这么确定：它取决于驱动把段放在哪里，所以预测只给出一个范围。
# %% [markdown] id="why_intro" lang="en"
# ## What is the peak made of?
#
# **Predict.** For the baseline: which is larger at the peak, the saved activations or the optimizer's state? And how many MiB do the logits of 768 tokens over a vocabulary of 151,936 take, in fp32, if three copies are alive?
# %% [markdown] id="why_intro" lang="zh"
# ## 峰值由什么组成？
#
# **预测**：对基线来说，峰值时刻是被保存的激活大，还是优化器状态大？768 个 token、词表 151,936，fp32，如果同时有三份 logits 存活，要多少 MiB？
# %% id="why_table" compare=true
kinds = ["parameters", "gradients", "optimizer_state", "optimizer_temporaries", "saved_activations", "logits_and_loss"]
widgets.show(widgets.Table(
    ["strategy", *(kind.replace("_", " ") for kind in kinds)],
    [[item.name, *(round(item.prediction.profile.categories_at_peak[kind] / 2**20) for kind in kinds)]
     for item in predicted.strategies], caption="MiB at the peak"))

# %% id="why_advice"
for sentence in advise(predicted, widgets.language()):
    print(sentence)

# %% [markdown] id="why_read" lang="en"
# **Read.** Three strategies drop every saved activation and still pay for parameters, gradients, moments and temporaries. The logits alone are about 1,340 MiB of the baseline's peak: at long sequences they, not the layers, take over, and a chunked loss is the lever (notebook 06).
# %% [markdown] id="why_read" lang="zh"
# **解读**：三种策略在峰值时刻一点激活都没留，可参数、梯度、动量、临时量照样要付。单是 logits 就占了基线峰值的约 1,340 MiB：序列一长，唱主角的就是它，而不是各层的激活；这时的杠杆是分块损失（见 06）。
# %% [markdown] id="longest_intro" lang="en"
# ## The longest sequence that fits
#
# The card has 12,227 MiB; a screen and the CUDA context take about 1,050 of it. The search predicts one length after the other.
#
# **Predict.** The baseline fits 960 tokens. How many will checkpoint fit?
# %% [markdown] id="longest_intro" lang="zh"
# ## 放得下的最长序列
#
# 这块卡有 12,227 MiB，其中显示输出和 CUDA 上下文约占 1,050 MiB。搜索会逐个长度做预测。
#
# **预测**：基线放得下 960 个 token，checkpoint 能放下多少？
# %% id="longest_run" compare=true
limit = find_longest(workload, "checkpoint", card)
print(f"checkpoint: {limit.value} tokens")

# %% [markdown] id="longest_read" lang="en"
# **Read.** So the strategy does buy something: not megabytes at 768 tokens, but length. Where the optimizer sets the peak, its whole gain is the room *between* the activations and the optimizer's floor.
#
# ## Your turn: your model
#
# Put in a folder or a `config.json`, your sequence length, and a card from the table (or a size, `"24GiB"`).
# %% [markdown] id="longest_read" lang="zh"
# **解读**：策略确实换来了东西，只不过不是 768 个 token 时的那几兆，而是长度。当峰值由优化器决定时，它的全部收益，就是激活与优化器下限*之间*的那段空间。
#
# ## 轮到你：换成你的模型
#
# 填一个模型目录或 `config.json`、你的序列长度，以及表里的一块卡（或者直接写大小，如 `"24GiB"`）。
# %% id="your_turn"
MODEL, SEQ_LEN, CARD = None, 1024, "24GiB"  # MODEL: a folder or config.json  # [en]
MODEL, SEQ_LEN, CARD = None, 1024, "24GiB"  # MODEL：模型目录或 config.json  # [zh]

if MODEL:
    own = experiment.load_experiment(model=MODEL, seq_len=SEQ_LEN, weights="random", ladder=[]).workload
    for sentence in advise(estimate(own, device=find_device(CARD)), widgets.language()):
        print(sentence)

# %% [markdown] id="limits" lang="en"
# ## Limits
#
# * Peak allocated follows from the trace. Peak reserved is a range; what the driver shows is larger still.
# * The attention kernel is chosen by dtype, grouped-query heads and compute capability. Another kernel on your machine means another peak; a record says which one ran.
# * Time is a rough ratio, not a prediction. Only a measurement tells seconds.
#
# ## Next
#
# 04 measures. Keep your numbers: 05 puts prediction and measurement side by side.
# %% [markdown] id="limits" lang="zh"
# ## 局限
#
# * 已分配峰值由轨迹推出；预留峰值是一个范围；驱动显示的占用还要更大。
# * 注意力算子按 dtype、分组查询头和计算能力选择。你的机器上换了算子，峰值就不一样；记录里会写明实际跑的是哪个。
# * 时间只是粗略的比值，不是预测。要知道几秒，只能去测。
#
# ## 下一步
#
# 04 动手测量。留好你算的数：05 会把预测和实测摆在一起。
