"""The chunked loss head against transformers' own."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, Qwen2Config

from memstrat import loss_heads
from memstrat.errors import UnknownNameError
from memstrat.loss_heads import causal_lm_loss
from memstrat.memory import LiveBytes


def make_model(architecture: str = "qwen2", **overrides):
    """A model of two narrow layers in float32, seeded."""
    sizes = dict(hidden_size=32, num_hidden_layers=2, intermediate_size=64, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=8, vocab_size=512, max_position_embeddings=64,
                 pad_token_id=0, bos_token_id=1, eos_token_id=2)
    configs = {
        "qwen2": lambda: Qwen2Config(**{**sizes, "tie_word_embeddings": True, **overrides}),
        "gemma2": lambda: Gemma2Config(**{**sizes, **overrides}),
        "gpt2": lambda: GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=512, n_positions=64, bos_token_id=1,
                                   eos_token_id=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    }
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(configs[architecture](), attn_implementation="eager").train()


def make_batch(batch: int = 2, length: int = 24):
    return torch.randint(0, 512, (batch, length), generator=torch.Generator().manual_seed(1))


def loss_and_grads(model, ids, labels, loss_head):
    model.zero_grad()
    loss = causal_lm_loss(model, ids, labels, loss_head)
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("chunk_tokens", [7, 256])
@pytest.mark.parametrize("architecture", ["qwen2", "gemma2", "gpt2"])
def test_chunked_loss_equals_transformers_loss_and_gradients(architecture, chunk_tokens, monkeypatch):
    monkeypatch.setattr(loss_heads, "CHUNK_TOKENS", chunk_tokens)
    model, ids = make_model(architecture), make_batch()
    loss, grads = loss_and_grads(model, ids, ids, "hf")
    chunked_loss, chunked_grads = loss_and_grads(model, ids, ids, "chunked")
    torch.testing.assert_close(chunked_loss, loss, rtol=1e-6, atol=1e-6)
    assert grads.keys() == chunked_grads.keys()
    for name in grads:
        torch.testing.assert_close(chunked_grads[name], grads[name], rtol=1e-4, atol=1e-6)


def test_chunked_loss_ignores_masked_labels():
    model, ids = make_model(), make_batch()
    labels = ids.clone()
    labels[:, :10] = -100
    torch.testing.assert_close(causal_lm_loss(model, ids, labels, "chunked"),
                               causal_lm_loss(model, ids, labels, "hf"), rtol=1e-6, atol=1e-6)


def test_chunked_loss_follows_autocast_into_backward():
    model, ids = make_model(), make_batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, plain = causal_lm_loss(model, ids, ids, "hf"), causal_lm_loss(model, ids, ids, "chunked")
    torch.testing.assert_close(plain, loss, rtol=1e-4, atol=1e-4)
    plain.backward()
    chunked = model.get_output_embeddings().weight.grad.clone()
    model.zero_grad()
    loss.backward()
    torch.testing.assert_close(chunked, model.get_output_embeddings().weight.grad, rtol=0.1, atol=1e-3)


def test_chunked_loss_never_holds_all_logits(monkeypatch):
    monkeypatch.setattr(loss_heads, "CHUNK_TOKENS", 4)
    peaks = {}
    for loss_head in ("hf", "chunked"):
        model, ids = make_model(), make_batch(1, 64)
        live = LiveBytes(vocab_size=512)
        live.register(model.parameters(), "parameters")
        with live:
            with live.phase("forward"):
                loss = causal_lm_loss(model, ids, ids, loss_head)
            with live.phase("backward"):
                loss.backward()
        peaks[loss_head] = max(point.categories[5] for point in live.timeline)
    logits_bytes = 64 * 512 * 4
    assert peaks["hf"] >= 2 * logits_bytes
    assert peaks["chunked"] <= 3 * logits_bytes // 16


def test_loss_head_unknown_is_refused():
    with pytest.raises(UnknownNameError, match="loss_head: must be one of hf, chunked, got 'fused'"):
        causal_lm_loss(make_model(), make_batch(), make_batch(), "fused")
