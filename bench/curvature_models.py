"""The models of curvature_side_by_side.py as plain PyTorch modules, with their data."""

import json
import pathlib

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F


class DigitsMlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


class DigitsCnn(nn.Module):
    def __init__(self, conv1, conv2):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, **conv1), nn.Conv2d(16, 32, 3, **conv2)
        self.fc1, self.fc2 = nn.Linear(512, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x.view(-1, 1, 8, 8)))))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def convolution_of(module):
    """Stride and padding of a scripted convolution."""
    return {key: tuple(getattr(module, key)) for key in ("stride", "padding")}


def digits(path, data, samples):
    script = torch.jit.load(path)
    net = DigitsCnn(convolution_of(script.conv1), convolution_of(script.conv2)) if hasattr(script, "conv1") else DigitsMlp()
    net.load_state_dict(script.state_dict())
    tensors = load_file(data)
    x, y = tensors["x"].float(), tensors["y"].long()
    return net, x[: samples or None], y[: samples or None]


class Norm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(size)), epsilon

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon))


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.groups, self.size = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        hidden, queries, keys = c["hidden_size"], self.heads * self.size, self.groups * self.size
        self.q_proj, self.o_proj = nn.Linear(hidden, queries, bias=False), nn.Linear(queries, hidden, bias=False)
        self.k_proj, self.v_proj = nn.Linear(hidden, keys, bias=False), nn.Linear(hidden, keys, bias=False)

    def forward(self, x, cos, sin):
        n, t, _ = x.shape

        def rotated(y):
            half = self.size // 2
            return y * cos + torch.cat([-y[..., half:], y[..., :half]], -1) * sin

        def split(y, heads):
            return y.view(n, t, heads, self.size).transpose(1, 2)

        repeat = self.heads // self.groups
        q = rotated(split(self.q_proj(x), self.heads))
        k = rotated(split(self.k_proj(x), self.groups)).repeat_interleave(repeat, 1)
        v = split(self.v_proj(x), self.groups).repeat_interleave(repeat, 1)
        scores = q @ k.transpose(2, 3) / self.size**0.5
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        mixed = torch.softmax(scores.masked_fill(later, -torch.inf), -1) @ v
        return self.o_proj(mixed.transpose(1, 2).reshape(n, t, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, inner = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        gate = self.gate_proj(x)  # silu written out: its own backward has no forward derivative, which curvlinops takes
        return self.down_proj(gate * torch.sigmoid(gate) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Core(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Block(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])


class Llama(nn.Module):
    """Logits [n * t, vocabulary] with the head tied to the embedding, attention unfused."""

    def __init__(self, c):
        super().__init__()
        self.model, self.size, self.theta = Core(c), c["head_dim"], c["rope_theta"]

    def forward(self, ids):
        frequencies = self.theta ** (-torch.arange(0, self.size, 2) / self.size)
        angles = torch.outer(torch.arange(ids.shape[1]), torch.cat([frequencies, frequencies]))
        cos, sin = angles.cos(), angles.sin()
        x = self.model.embed_tokens(ids)
        for block in self.model.layers:
            x = block(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight).flatten(0, 1)


def language_model(directory, data, samples, length):
    config = json.loads((pathlib.Path(directory) / "config.json").read_text())
    assert config["tie_word_embeddings"], "only tied embeddings"
    net = Llama(config)
    weights = load_file(pathlib.Path(directory) / "model.safetensors")
    net.load_state_dict({k: v.float() for k, v in weights.items() if k != "lm_head.weight"})
    path, _, name = data.partition(".safetensors:")
    ids = load_file(f"{path}.safetensors" if name else path)[name or "input_ids"].long()
    ids = ids[: samples or None, :length]
    return net, ids[:, :-1], ids[:, 1:].flatten()
