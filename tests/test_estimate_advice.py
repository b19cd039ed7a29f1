"""Advice from rows made by hand; the lever's effect is answered by a stub."""

from __future__ import annotations

from memstrat.estimate.advice import advise_rows
from memstrat.experiment import load_experiment

MIB = 2**20
CATEGORIES = ("parameters", "gradients", "optimizer_state", "optimizer_temporaries", "saved_activations",
              "logits_and_loss", "other_temporaries")


def make_row(name, phase, **mib):
    split = {key: mib.get(key, 0) * MIB for key in CATEGORIES}
    return {"name": name, "peak_phase": phase, "peak_allocated_bytes": sum(split.values()),
            "categories_at_peak": split}


def make_workload(**overrides):
    return load_experiment("pressure", weights="random", **overrides).workload


def answer(mib, phase):
    asked = []

    def what_if(name, changes):
        asked.append((name, changes))
        return mib * MIB, phase
    return what_if, asked


BASELINE = make_row("baseline", "backward", parameters=1885, optimizer_state=3770, saved_activations=2763,
                    logits_and_loss=1337)
CHECKPOINT = make_row("checkpoint", "optimizer", parameters=1885, gradients=1885, optimizer_state=3770,
                      optimizer_temporaries=1885)


def test_advice_offers_no_foreach_where_its_temporaries_set_the_peak():
    what_if, asked = answer(8577, "backward")
    sentences = advise_rows([BASELINE, CHECKPOINT], make_workload(), what_if)
    assert sentences == [
        "Backward sets the peak of baseline (9,755 MiB), the optimizer step that of checkpoint (9,425 MiB).",
        "There `foreach` temporaries are one more copy of the parameters (1,885 MiB): with --no-foreach checkpoint "
        "would peak at 8,577 MiB, set by backward.",
        "As it stands checkpoint saves most: 330 MiB, 3% of the baseline's peak."]
    assert [name for name, _ in asked] == ["checkpoint"]
    assert asked[0][1]["optimizer"]["foreach"] is False


def test_advice_speaks_chinese():
    sentences = advise_rows([BASELINE, CHECKPOINT], make_workload(), answer(8577, "backward")[0], "zh")
    assert sentences == [
        "baseline 的峰值由反向决定（9,755 MiB），checkpoint 的由优化器更新决定（9,425 MiB）。",
        "此时 `foreach` 的临时张量相当于再多一份参数（1,885 MiB）：加上 --no-foreach，"
        "checkpoint 的峰值会是 8,577 MiB，由反向决定。",
        "目前 checkpoint 省得最多：330 MiB，占基线峰值的 3%。"]


def test_advice_does_not_offer_what_is_already_off():
    what_if, asked = answer(1, "backward")
    sentences = advise_rows([CHECKPOINT], make_workload(foreach=False), what_if)
    assert sentences[1] == "The optimizer's temporaries take 1,885 MiB of it."
    assert not asked


def test_advice_offers_the_chunked_loss_head_where_logits_set_the_peak():
    what_if, asked = answer(2404, "backward")
    row = make_row("hybrid", "forward", parameters=1000, logits_and_loss=7000)
    sentences = advise_rows([row], make_workload(), what_if)
    assert sentences[1] == ("Logits and loss take 7,000 MiB of hybrid's peak: with --loss-head chunked hybrid would "
                            "peak at 2,404 MiB, set by backward.")
    assert asked == [("hybrid", {"loss_head": "chunked"})]


def test_advice_names_saved_activations():
    what_if, _ = answer(1, "backward")
    row = make_row("baseline", "backward", parameters=1000, saved_activations=3000)
    assert "Saved activations take 3,000 MiB of baseline's peak" in advise_rows([row], make_workload(), what_if)[1]


def test_advice_says_when_no_strategy_helps():
    what_if, _ = answer(1, "backward")
    fixed = {"parameters": 1000, "gradients": 1000, "optimizer_state": 2000}
    sentences = advise_rows([make_row("baseline", "optimizer", **fixed), make_row("offload", "optimizer", **fixed,
                                                                                  other_temporaries=1)],
                            make_workload(), what_if)
    assert "take 4,000 MiB of baseline's 4,000 MiB whatever the strategy" in sentences[1]
    assert sentences[2] == "No strategy needs less memory than the baseline here."


def test_advice_on_nothing_is_nothing():
    assert advise_rows([], make_workload(), answer(1, "backward")[0]) == []
