"""Further small models: recurrent attention, graphs, recommendation, contrast, diffusion, complex rotations, checkpoints and tied weights."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Seq2Seq(nn.Module):
    """A recurrent encoder, a decoder cell that attends to it additively."""

    def __init__(self, r):
        super().__init__()
        self.d = d = r.choice([16, 24, 32])
        self.gru = r.random() < 0.5
        self.emb = nn.Embedding(24, d, padding_idx=0)
        self.enc = (nn.GRU if self.gru else nn.LSTM)(d, d, 1, batch_first=True, bidirectional=True)
        self.cell = (nn.GRUCell if self.gru else nn.LSTMCell)(2 * d, d)
        self.key, self.query, self.score = nn.Linear(2 * d, d, bias=False), nn.Linear(d, d), nn.Parameter(torch.randn(d) * 0.3)
        self.mix, self.head = nn.Linear(3 * d, d), nn.Linear(d, 24)

    def forward(self, src, dst):
        memory = self.enc(self.emb(src))[0]
        keys, dead = self.key(memory), src == 0
        h = torch.zeros(src.shape[0], self.d, dtype=memory.dtype)
        c, out = h, []
        for x in self.emb(dst).unbind(1):
            s = torch.matmul(torch.tanh(keys + self.query(h).unsqueeze(1)), self.score.to(memory.dtype)).masked_fill(dead, -1e4)
            a = torch.einsum("bs,bsd->bd", F.softmax(s, -1).to(memory.dtype), memory)
            x = torch.cat([x.to(h.dtype), F.hardtanh(self.mix(torch.cat([h, a.to(h.dtype)], -1))).to(h.dtype)], -1)
            if self.gru:
                h = self.cell(x, h)
            else:
                h, c = self.cell(x, (h, c))
            out.append(h)
        return self.head(torch.stack(out, 1))

    def loss(self, batch):
        y = self(batch[0], batch[1][:, :-1])
        return F.cross_entropy(y.float().flatten(0, 1), batch[1][:, 1:].reshape(-1), ignore_index=0)

    def data(self, r):
        t = torch.randint(1, 24, (6, 9))
        t[1, 6:] = 0
        t[4, 4:] = 0
        return t, torch.cat([t[:, :1], (t.flip(1) * 5 + 1) % 24], 1)[:, :7]


class EinsumViT(nn.Module):
    """Patches by unfold, attention by einsum with relative positions, scaled branches, a squared relu."""

    def __init__(self, r):
        super().__init__()
        self.d, self.h = d, h = r.choice([(32, 4), (48, 4), (40, 5)])
        self.patch = nn.Linear(48, d)
        self.bias = nn.Parameter(torch.randn(h, 16, 16) * 0.1)
        self.layers = nn.ModuleList(nn.ModuleDict({"n1": nn.LayerNorm(d), "qkv": nn.Linear(d, 3 * d), "o": nn.Linear(d, d), "n2": nn.LayerNorm(d),
                                                   "up": nn.Linear(d, 2 * d), "down": nn.Linear(2 * d, d)}) for _ in range(2))
        self.gamma = nn.ParameterList(nn.Parameter(torch.full((d,), 0.5)) for _ in range(4))
        self.head = nn.Linear(d, 10)
        self.tanh = r.random() < 0.5

    def forward(self, x):
        x = self.patch(F.unfold(x, 4, stride=4).transpose(1, 2))
        b, s, d = x.shape
        for i, l in enumerate(self.layers):
            q, k, v = l["qkv"](l["n1"](x)).reshape(b, s, 3, self.h, d // self.h).unbind(2)
            a = torch.einsum("bqhd,bkhd->bhqk", q * (d // self.h) ** -0.5, k) + self.bias
            y = torch.einsum("bhqk,bkhd->bqhd", a.softmax(-1).to(v.dtype), v).flatten(2)
            x = x + l["o"](y) * self.gamma[2 * i]
            y = l["up"](l["n2"](x))
            x = torch.addcmul(x, l["down"](F.gelu(y, approximate="tanh") if self.tanh else F.relu(y).square()).to(x.dtype), self.gamma[2 * i + 1])
        return self.head(x.mean(1))

    def loss(self, batch):
        return F.nll_loss(F.log_softmax(self(batch[0]).float(), -1), batch[1])

    def data(self, r):
        y = torch.randint(0, 10, (8,))
        return torch.randn(8, 3, 16, 16) + y.view(-1, 1, 1, 1) * 0.2, y


class Clip(nn.Module):
    """Two towers, unit vectors, a learned temperature; log-sum-exp both ways."""

    def __init__(self, r):
        super().__init__()
        d = r.choice([24, 32, 48])
        self.a = nn.Sequential(nn.Linear(20, 2 * d), nn.GELU(), nn.LayerNorm(2 * d), nn.Linear(2 * d, d))
        self.b = nn.Sequential(nn.Conv1d(4, d, 3, padding=1), nn.Mish(), nn.InstanceNorm1d(d, affine=True), nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Linear(2 * d, d))
        self.t = nn.Parameter(torch.tensor(1.5))
        self.n = r.choice([12, 16])

    def forward(self, x, y):
        x, y = F.normalize(self.a(x).float(), dim=-1), F.normalize(self.b(y).float(), dim=-1)
        return x @ y.t() * self.t.float().exp()

    def loss(self, batch):
        s = self(*batch)
        own = torch.diagonal(s)
        return (torch.logsumexp(s, 0) - own).mean() + (torch.logsumexp(s, 1) - own).mean() + 0.01 * (s.std(1) + s.var(0, unbiased=False).sqrt()).sum()

    def data(self, r):
        x = torch.randn(self.n, 20)
        return x, x[:, :4, None] * 0.5 + torch.randn(self.n, 4, 10)


class Dlrm(nn.Module):
    """Bags of embeddings, products of pairs, quantile and Huber losses."""

    def __init__(self, r):
        super().__init__()
        d = r.choice([8, 16, 24])
        self.bags = nn.ModuleList(nn.EmbeddingBag(40, d, mode=m) for m in ("mean", "sum", "max" if r.random() < 0.5 else "mean"))
        self.low = nn.Sequential(nn.Linear(6, 2 * d), nn.PReLU(), nn.Linear(2 * d, d), nn.SELU())
        self.top = nn.Sequential(nn.Linear(d + 6, 2 * d), nn.Hardswish(), nn.BatchNorm1d(2 * d), nn.Linear(2 * d, 3))
        self.register_buffer("low_ix", torch.tril_indices(4, 4, -1), persistent=False)

    def forward(self, dense, ids):
        x = self.low(dense)
        v = torch.stack([x] + [b(ids[:, i]).to(x.dtype) for i, b in enumerate(self.bags)], 1)
        z = torch.bmm(v, v.transpose(1, 2))
        return self.top(torch.cat([x, z[:, self.low_ix[0], self.low_ix[1]].to(x.dtype)], 1))

    def loss(self, batch):
        y = self(batch[0], batch[1]).float()
        e = batch[2].float() - y[:, 0]
        return (torch.maximum(0.7 * e, -0.3 * e).mean() + F.huber_loss(y[:, 1], batch[2].float(), delta=0.5) +
                F.binary_cross_entropy(torch.sigmoid(y[:, 2]).clamp(1e-6, 1 - 1e-6), (batch[2] > 0).float()))

    def data(self, r):
        x = torch.randn(16, 6)
        return x, torch.randint(0, 40, (16, 3, 5)), x.sum(1) * 0.5


class Gnn(nn.Module):
    """Messages along edges: gather, a softmax over each node's edges, scatter-add, mean over graphs."""

    def __init__(self, r):
        super().__init__()
        d = r.choice([16, 24, 32])
        self.n = r.choice([30, 40])
        self.first = nn.Linear(5, d)
        self.layers = nn.ModuleList(nn.ModuleList([nn.Linear(d, d, bias=False), nn.Linear(2 * d, 1), nn.BatchNorm1d(d), nn.Linear(d, d)]) for _ in range(2))
        self.head = nn.Linear(d, 4)

    def forward(self, x, edges, graph):
        x, (src, dst) = F.leaky_relu(self.first(x)), edges
        for w, att, norm, skip in self.layers:
            m = w(x)
            from_, to = torch.index_select(m, 0, src), torch.index_select(m, 0, dst)
            s = F.leaky_relu(att(torch.cat([from_, to], 1)).squeeze(1), 0.2).float()
            top = torch.full((x.shape[0],), -1e9).scatter_reduce(0, dst, s.detach(), "amax")
            e = torch.exp(s - top[dst])
            z = torch.zeros(x.shape[0]).scatter_add(0, dst, e)
            p = (e / (z[dst] + 1e-9)).to(m.dtype)
            y = torch.zeros_like(m).scatter_add(0, dst.unsqueeze(1).expand(-1, m.shape[1]), from_ * p.unsqueeze(1))
            x = F.elu(norm(y) + skip(x).to(y.dtype)).to(x.dtype)
        g = torch.zeros(4, x.shape[1], dtype=x.dtype).index_add(0, graph, x)
        return self.head(g / torch.bincount(graph, minlength=4).clamp(min=1).to(x.dtype).unsqueeze(1))

    def loss(self, batch):
        return F.cross_entropy(self(*batch).float(), torch.arange(4)) + F.kl_div(F.log_softmax(self.first.weight.float(), 0), torch.full(self.first.weight.shape, 0.05), reduction="batchmean")

    def data(self, r):
        return torch.randn(self.n, 5), torch.randint(0, self.n, (2, 4 * self.n)), torch.arange(self.n) * 4 // self.n


class Diffusion(nn.Module):
    """A noise predictor: sinusoids of the time step, scale and shift of group norms, interpolation with aligned corners."""

    def __init__(self, r):
        super().__init__()
        c = self.c = r.choice([8, 16])
        self.time = nn.Sequential(nn.Linear(16, 2 * c), nn.SiLU(), nn.Linear(2 * c, 4 * c))
        self.inp, self.down = nn.Conv2d(2, c, 3, padding=1), nn.Conv2d(c, 2 * c, 4, 2, 1)
        self.norm, self.mid = nn.GroupNorm(4, 2 * c), nn.Conv2d(2 * c, 2 * c, 3, padding=1, padding_mode="reflect" if r.random() < 0.5 else "zeros")
        self.att = nn.MultiheadAttention(2 * c, 2, batch_first=True)
        self.pick = r.choice(["bilinear", "bicubic", "transposed", "shuffle"])
        self.up = nn.ConvTranspose2d(2 * c, c, 4, 2, 1) if self.pick == "transposed" else nn.Conv2d(2 * c, 4 * c if self.pick == "shuffle" else c, 3, padding=1)
        self.out = nn.utils.parametrizations.weight_norm(nn.Conv2d(2 * c, 2, 3, padding=1))

    def forward(self, x, t):
        f = torch.exp(-math.log(1000.0) * torch.arange(8) / 8)
        a = t.float()[:, None] * f
        e = self.time(torch.cat([a.sin(), a.cos()], 1).to(x.dtype))
        scale, shift = e[:, :, None, None].chunk(2, 1)
        h = self.inp(x)
        y = self.down(F.silu(h))
        y = F.silu(self.norm(y) * (1 + scale) + shift)
        y = self.mid(y) + y
        s = y.flatten(2).transpose(1, 2)
        y = y + self.att(s, s, s, need_weights=False)[0].transpose(1, 2).reshape(y.shape)
        if self.pick in ("bilinear", "bicubic"):
            y = self.up(F.interpolate(y, scale_factor=2, mode=self.pick, align_corners=True))
        else:
            y = F.pixel_shuffle(self.up(y), 2) if self.pick == "shuffle" else self.up(y)
        return self.out(torch.cat([y, h.to(y.dtype)], 1))

    def loss(self, batch):
        x, noise, t = batch
        a = torch.cos(t.float() / 1000 * math.pi / 2).view(-1, 1, 1, 1)
        y = self((a * x.float() + (1 - a * a).sqrt() * noise.float()).to(x.dtype), t).float()
        return (F.mse_loss(y, noise.float(), reduction="none").mean((1, 2, 3)) * torch.rsqrt(1 + t.float() / 100)).mean()

    def data(self, r):
        return torch.randn(4, 2, 8, 8) * 0.5, torch.randn(4, 2, 8, 8), torch.tensor([10, 200, 500, 900])


class Rope(nn.Module):
    """Complex rotations, grouped keys, gated layers, checkpoints in every layer, tied weights."""

    def __init__(self, r):
        super().__init__()
        self.d, self.h, self.kv, self.s = d, h, kv, s = r.choice([(32, 4, 1, 16), (48, 4, 2, 12), (48, 6, 2, 20)])
        self.emb = nn.Embedding(48, d)
        nn.init.normal_(self.emb.weight, std=0.3)
        self.layers = nn.ModuleList(nn.ModuleDict({"n1": nn.RMSNorm(d, eps=1e-5), "q": nn.Linear(d, d, bias=False), "k": nn.Linear(d, d // h * kv, bias=False),
                                                   "v": nn.Linear(d, d // h * kv, bias=False), "o": nn.Linear(d, d, bias=False), "n2": nn.RMSNorm(d, eps=1e-5),
                                                   "gate": nn.Linear(d, 2 * d, bias=False), "up": nn.Linear(d, 2 * d, bias=False),
                                                   "down": nn.Linear(2 * d, d, bias=False)}) for _ in range(2))
        self.norm = nn.RMSNorm(d, eps=1e-5)
        self.kept = r.random() < 0.5
        self.cap = r.random() < 0.5

    def turn(self, x):
        n = x.shape[-1]
        f = torch.outer(torch.arange(x.shape[1]).float(), 1.0 / 10000 ** (torch.arange(0, n, 2).float() / n))
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], n // 2, 2)) * torch.polar(torch.ones_like(f), f)[:, None]
        return torch.view_as_real(z).flatten(3).type_as(x)

    def layer(self, x, l):
        b, s, d = x.shape
        n = d // self.h
        y = l["n1"](x)
        q, k = self.turn(l["q"](y).view(b, s, self.h, n)), self.turn(l["k"](y).view(b, s, self.kv, n))
        v = l["v"](y).view(b, s, self.kv, n)
        k, v = (t[:, :, :, None, :].expand(b, s, self.kv, self.h // self.kv, n).reshape(b, s, self.h, n).transpose(1, 2) for t in (k, v))
        a = q.transpose(1, 2) @ k.transpose(-1, -2) / math.sqrt(n)
        a = torch.tanh(a / 5) * 5 if self.cap else a
        a = torch.where(torch.ones(s, s, dtype=torch.bool).tril(), a, float("-inf"))
        x = x + l["o"]((F.softmax(a.float(), -1).type_as(v) @ v).transpose(1, 2).flatten(2))
        y = l["n2"](x)
        return x + l["down"](F.silu(l["gate"](y)) * l["up"](y))

    def forward(self, t):
        x = self.emb(t) * math.sqrt(self.d) * 0.2
        for l in self.layers:
            x = checkpoint(self.layer, x, l, use_reentrant=False) if self.kept else self.layer(x, l)
        return F.linear(self.norm(x), self.emb.weight)

    def loss(self, batch):
        y = self(batch[:, :-1]).float()
        n = F.cross_entropy(y.transpose(1, 2), batch[:, 1:], reduction="none")
        w = (batch[:, 1:] != 0).float()
        return (n * w).sum() / w.sum()

    def data(self, r):
        t = torch.randint(0, 48, (4, self.s + 1))
        t[:, 1::2] = (t[:, :-1:2] * 7 + 3) % 48
        return t


class Mamba(nn.Module):
    """A selective scan: step by step, by cumulative products, or by cumulative log-sum-exps."""

    def __init__(self, r):
        super().__init__()
        self.d, self.n = d, n = r.choice([(16, 4), (24, 4), (32, 2)])
        self.how = r.choice(["loop", "prod", "log"])
        self.emb = nn.Embedding(32, d)
        self.inp, self.conv = nn.Linear(d, 2 * d, bias=False), nn.Conv1d(d, d, 4, groups=d, padding=3)
        self.par, self.dt = nn.Linear(d, 2 * n + 2), nn.Linear(2, d)
        self.a, self.skip = nn.Parameter(torch.log(torch.arange(1.0, n + 1)).repeat(d, 1)), nn.Parameter(torch.ones(d))
        self.out, self.norm, self.head = nn.Linear(d, d, bias=False), nn.LayerNorm(d), nn.Linear(d, 32, bias=False)

    def forward(self, t):
        e = self.emb(t)
        u, z = self.inp(e).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :t.shape[1]].transpose(1, 2))
        b, c, dt = torch.split(self.par(u), [self.n, self.n, 2], -1)
        dt = F.softplus(self.dt(dt)).float()
        da = torch.exp(-dt.unsqueeze(-1) * torch.exp(self.a.float()) * 0.3)
        x = (dt * u.float()).unsqueeze(-1) * b.float().unsqueeze(2)
        if self.how == "loop":
            h, hs = torch.zeros_like(x[:, 0]), []
            for i in range(t.shape[1]):
                h = da[:, i] * h + x[:, i]
                hs.append(h)
            h = torch.stack(hs, 1)
        elif self.how == "prod":
            p = torch.cumprod(da, 1)
            h = p * torch.cumsum(x / (p + 1e-12), 1)
        else:
            p = torch.cumsum(torch.log(da), 1)
            h = torch.exp(p + torch.logcumsumexp(torch.log(x.abs() + 1e-6) - p, 1)) * torch.sign(x.detach().sum(1, keepdim=True))
        y = (h * c.float().unsqueeze(2)).sum(-1) + u.float() * self.skip.float()
        y = self.out((y * F.silu(z.float())).to(e.dtype))
        return self.head(self.norm(e + y.to(e.dtype)))

    def loss(self, t):
        y = self(t[:, :-1]).float()
        return F.cross_entropy(y.reshape(-1, 32), t[:, 1:].reshape(-1), label_smoothing=0.05) + 1e-3 * y.norm(dim=-1).mean()

    def data(self, r):
        return torch.cumsum(torch.randint(0, 5, (6, 11)), 1) % 32


class Sorted(nn.Module):
    """Experts that get their tokens sorted, cut off at a capacity, and added back by scatter_add."""

    def __init__(self, r):
        super().__init__()
        self.d, self.k = r.choice([16, 24, 32]), r.choice([1, 2])
        d = self.d
        self.inp, self.gate = nn.Linear(12, d), nn.Linear(d, 4, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(4, d, 2 * d) * d ** -0.5), nn.Parameter(torch.randn(4, 2 * d, d) * (2 * d) ** -0.5)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 6)

    def forward(self, x):
        x = self.norm(torch.tanh(self.inp(x)))
        p = torch.sigmoid(self.gate(x).float())
        w, ix = p.topk(self.k, -1)
        flat, order = ix.flatten().sort(stable=True)
        token = order // self.k
        n = torch.bincount(flat, minlength=4)
        slot = torch.arange(flat.numel()) - (torch.cumsum(n, 0) - n)[flat]
        cap = x.shape[0] * self.k // 2
        kept = slot < cap
        place = flat[kept] * cap + slot[kept]
        wide = token[kept].unsqueeze(1).expand(-1, self.d)
        box = torch.zeros(4 * cap, self.d, dtype=x.dtype).index_put((place,), torch.gather(x, 0, wide))
        y = torch.bmm(F.relu6(torch.baddbmm(torch.zeros(4, 1, 2 * self.d, dtype=x.dtype), box.view(4, cap, -1), self.up)), self.down).flatten(0, 1)
        y = y[place] * w.flatten()[order][kept].unsqueeze(1).to(y.dtype)
        x = x + torch.zeros_like(x).scatter_add(0, wide, y.to(x.dtype))
        self.aux = (torch.logsumexp(self.gate(x).float(), -1) ** 2).mean()
        return self.head(x)

    def loss(self, batch):
        y = self(batch[0]).float()
        return F.multi_margin_loss(y, batch[1]) + 0.01 * self.aux + F.soft_margin_loss(y[:, 0], torch.where(batch[1] > 2, 1.0, -1.0))

    def data(self, r):
        x = torch.randn(24, 12)
        return x, x[:, :6].argmax(1)


class Vae(nn.Module):
    """Strided and transposed convolutions, batch norm, a reparameterised code, a local response and a grid sampled."""

    def __init__(self, r):
        super().__init__()
        c, self.z = r.choice([(6, 4), (8, 6), (12, 8)])
        self.enc = nn.Sequential(nn.Conv2d(1, c, 3, 2, 1), nn.BatchNorm2d(c), nn.LeakyReLU(0.2), nn.Conv2d(c, 2 * c, 3, 2, 1, bias=False), nn.BatchNorm2d(2 * c), nn.Softplus())
        self.to_z, self.of_z = nn.Linear(8 * c, 2 * self.z), nn.Linear(self.z, 8 * c)
        self.dec = nn.Sequential(nn.ConvTranspose2d(2 * c, c, 3, 2, 1, 1), nn.GELU(), nn.AvgPool2d(2, 1, 1, count_include_pad=False), nn.Conv2d(c, 1, 2, stride=1))
        self.theta = nn.Parameter(torch.tensor([[1.0, 0.1, 0.0], [-0.1, 1.0, 0.05]]))
        self.sample = r.random() < 0.6

    def loss(self, batch):
        x, eps = batch
        m, v = self.to_z(self.enc(x).flatten(1)).float().split(self.z, 1)
        y = self.of_z((m + torch.exp(0.5 * v) * eps.float()).to(x.dtype))
        y = self.dec(y.view(x.shape[0], -1, 2, 2))
        y = F.interpolate(y.float(), size=(8, 8), mode="bilinear", align_corners=False)
        if self.sample:
            y = F.grid_sample(y, F.affine_grid(self.theta.float().expand(x.shape[0], 2, 3), y.shape, align_corners=False), align_corners=False, padding_mode="border")
        kl = -0.5 * (1 + v - m.pow(2) - v.exp()).sum(1).mean()
        return F.binary_cross_entropy_with_logits(y, (x.float() > 0.3).float(), pos_weight=torch.tensor(1.5)) + 0.02 * kl + F.l1_loss(torch.sigmoid(y), x.float()) * 0.1

    def data(self, r):
        return torch.rand(8, 1, 8, 8), torch.randn(8, self.z)


FAMILIES = {"seq2seq": Seq2Seq, "einsum": EinsumViT, "clip": Clip, "dlrm": Dlrm, "gnn": Gnn, "diffusion": Diffusion, "rope": Rope, "mamba": Mamba,
            "sorted": Sorted, "vae": Vae}
