"""PyTorch, in the four ways that people run a layer with it."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .peer import Absent, refuse_scores_beyond_memory


class Attention(nn.Module):
    """Linear layers, heads split and merged; what is between is the subclass's. A cache is memory of fixed size that a step
    writes its keys to, which is faster than concatenation."""

    def __init__(self, shape, data):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.num_heads, shape.num_kv_heads, shape.head_dim
        self.scale = shape.head_dim**-0.5
        self.q, self.k, self.v, self.o = (self.linear(data, n) for n in "qkvo")
        self.causal = shape.causal and not shape.decode
        self.memory, self.cached = shape.memory, shape.cached
        if self.cached:
            extent = (shape.batch, shape.num_kv_heads, shape.seq_kv, shape.head_dim)
            self.k_cache, self.v_cache = torch.zeros(extent), torch.zeros(extent)
            self.k_cache[:, :, : self.cached] = torch.from_numpy(data.past_k)
            self.v_cache[:, :, : self.cached] = torch.from_numpy(data.past_v)
        self.keep = None  # True: the key counts
        if data.lengths is not None:
            keep = np.arange(shape.seq_kv) < data.lengths[:, None]
            self.keep = torch.from_numpy(keep)[:, None, None, :]
        elif self.causal and self.needs_causal_mask:
            self.keep = torch.ones(shape.seq_q, shape.seq_kv, dtype=torch.bool).tril()

    needs_causal_mask = True

    @staticmethod
    def linear(data, name):
        weight, bias = torch.from_numpy(data.weights[f"w{name}"]), torch.from_numpy(data.weights[f"b{name}"])
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight, layer.bias = nn.Parameter(weight, False), nn.Parameter(bias, False)
        return layer

    def split(self, x, heads):
        batch, seq, _ = x.shape
        return x.view(batch, seq, heads, self.head_dim).transpose(1, 2)

    def forward(self, query, key):
        q = self.split(self.q(query), self.heads)
        if self.memory:
            k, v = self.k_cache, self.v_cache
        else:
            k, v = self.split(self.k(key), self.kv_heads), self.split(self.v(key), self.kv_heads)
            if self.cached:
                self.k_cache[:, :, self.cached :] = k
                self.v_cache[:, :, self.cached :] = v
                k, v = self.k_cache, self.v_cache
        context, probs = self.attend(q, k, v)
        batch, _, seq, _ = q.shape
        return self.o(context.transpose(1, 2).reshape(batch, seq, -1)), probs


class EagerAttention(Attention):
    """As articles teach it."""

    def attend(self, q, k, v):
        if self.kv_heads != self.heads:
            k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
            v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.scale
        if self.keep is not None:
            scores = scores.masked_fill(~self.keep, float("-inf"))
        probs = torch.softmax(scores, dim=-1)
        return torch.matmul(probs, v), probs


class SdpaAttention(Attention):
    needs_causal_mask = False

    def attend(self, q, k, v):
        grouped = self.kv_heads != self.heads
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=self.keep, is_causal=self.causal, enable_gqa=grouped)
        return context, None


class TorchPeer:
    """`module(query, key)` gives out, and weights of heads or None."""

    def __init__(self, shape, data, threads):
        torch.set_num_threads(threads)
        self.sets = [
            (torch.from_numpy(query), None if key is None else torch.from_numpy(key))
            for query, key in zip(data.queries, data.keys, strict=True)
        ]
        with torch.inference_mode():
            self.module = self.make(shape, data).eval()

    def __call__(self, index):
        with torch.inference_mode():
            return self.module(*self.sets[index])

    @staticmethod
    def result(output):
        out, probs = output
        return out.numpy(), None if probs is None else probs.numpy()

    def close(self):
        self.module = None


class TorchEager(TorchPeer):
    def make(self, shape, data):
        refuse_scores_beyond_memory(shape)
        return EagerAttention(shape, data)


class TorchSdpa(TorchPeer):
    def make(self, shape, data):
        if shape.probs:
            raise Absent("scaled_dot_product_attention returns no weights")
        return SdpaAttention(shape, data)


class TorchCompile(TorchPeer):
    """Of the module with scaled_dot_product_attention; where weights are wanted, of the eager class."""

    def make(self, shape, data):
        torch._dynamo.reset()
        torch._inductor.config.freezing = True  # weights are constants, and packed once
        module = EagerAttention(shape, data) if shape.probs else SdpaAttention(shape, data)
        return torch.compile(module.eval(), dynamic=False)


class MultiheadAttention(nn.Module):
    """nn.MultiheadAttention; in inference mode its fast path runs wherever its conditions hold."""

    def __init__(self, shape, data):
        super().__init__()
        w = {name: torch.from_numpy(value) for name, value in data.weights.items()}
        self.layer = nn.MultiheadAttention(shape.d_model, shape.num_heads, batch_first=True)
        with torch.no_grad():
            self.layer.in_proj_weight.copy_(torch.cat([w["wq"], w["wk"], w["wv"]]))
            self.layer.in_proj_bias.copy_(torch.cat([w["bq"], w["bk"], w["bv"]]))
            self.layer.out_proj.weight.copy_(w["wo"])
            self.layer.out_proj.bias.copy_(w["bo"])
        self.layer.requires_grad_(False)
        self.options = {"need_weights": shape.probs, "average_attn_weights": False}
        if shape.causal:
            mask = torch.ones(shape.seq_q, shape.seq_kv, dtype=torch.bool).triu(1)
            self.options |= {"attn_mask": mask, "is_causal": not shape.probs}
        if data.lengths is not None:
            padding = np.arange(shape.seq_kv) >= data.lengths[:, None]
            self.options["key_padding_mask"] = torch.from_numpy(padding)

    def forward(self, query, key):
        return self.layer(query, key, key, **self.options)


class TorchMultihead(TorchPeer):
    def make(self, shape, data):
        if shape.num_kv_heads != shape.num_heads or shape.head_dim * shape.num_heads != shape.d_model:
            raise Absent("nn.MultiheadAttention has no grouped heads")
        if shape.cached:
            raise Absent("nn.MultiheadAttention has no cache")
        refuse_scores_beyond_memory(shape)
        return MultiheadAttention(shape, data)
