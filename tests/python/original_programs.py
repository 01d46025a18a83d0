"""Small programs whose record by mindstudio-probe 8.3.3 is in tests/data/collect. c.start(model) and c.end() stand around what is recorded."""
import inspect

from collecting import torch

import torch.nn as nn
import torch.nn.functional as F

PROGRAMS = {}


def R(*shape, seed=0, dtype=torch.float32, grad=False):
    t = torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 17)).to(dtype)  # to() is recorded, too
    return t.requires_grad_() if grad else t


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def fill(model):
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(R(*p.shape, seed=i))
    return model


@program
def inplace(c):
    w = R(4, 5, grad=True)
    c.start()
    x = w * 2
    x.add_(1.0)
    x.mul_(R(4, 5, seed=1))
    x.sub_(0.5).div_(2)
    torch.relu_(x)
    y = F.relu(x * 3, inplace=True)
    y = F.leaky_relu(y - 1, 0.1, True) + 0
    y.clamp_(min=-0.5)
    y += 1
    y -= 0.25
    y *= 2
    y /= 3
    y = y + 0
    y.tanh_()
    y = y + 0
    y.addcmul_(R(4, 5, seed=2), R(4, 5, seed=3), value=0.1)
    y.masked_fill_(R(4, 5, seed=4) > 0, 0.25)
    z = y.transpose(0, 1)
    z = z.contiguous()
    z.t_()
    z.squeeze_()
    loss = z.sum()
    loss.backward()
    c.end()


@program
def views(c):
    w = R(4, 6, grad=True)
    c.start()
    x = w * 1.5
    a = x.view(2, 12)
    b = x.reshape(-1)
    d = x.transpose(0, 1)
    e = x.permute(1, 0)
    f = x.unsqueeze(0).expand(3, 4, 6)
    g = x.T
    h1, h2 = x.chunk(2, dim=1)
    s1, s2, s3 = x.split([1, 2, 3], dim=1)
    u = torch.unbind(x, 0)
    n = x.narrow(1, 1, 3)
    k = torch.as_strided(x, (2, 2), (1, 2))
    q = x.select(0, 1)
    m = x.flatten().unflatten(0, (6, 4))
    v = x.view_as(w).squeeze()
    loss = (a.sum() + b.sum() + d.sum() + e.sum() + f.sum() + g.sum() + h1.sum() + h2.mean() + s1.sum() + s2.sum() + s3.sum()
            + u[0].sum() + u[3].sum() + n.sum() + k.sum() + q.sum() + m.sum() + v.sum())
    loss.backward()
    c.end()


@program
def nograd(c):
    lin = nn.Linear(4, 3)
    with torch.no_grad():
        lin.weight.copy_(R(3, 4)), lin.bias.zero_()
    m = nn.Sequential(lin)
    x = R(2, 4, seed=5, grad=True)
    c.start(m)
    with torch.no_grad():
        a = m(x)
        with torch.enable_grad():
            b = m(x)
    with torch.inference_mode():
        d = m(x) + 1
    e = m(x).detach() * 2
    loss = b.sum() + (m(x) * e).sum()
    loss.backward()
    c.end()


@program
def shared_weights(c):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(7, 4)
            self.proj = nn.Linear(4, 7, bias=False)
            self.proj.weight = self.emb.weight
            self.block = nn.Linear(4, 4)
            self.again = self.block
            self.inner = nn.ModuleDict({"a": nn.Sequential(self.block, nn.Tanh())})

        def forward(self, i):
            h = self.block(self.emb(i))
            h = self.again(h)
            return self.proj(self.inner["a"](h))
    m = fill(Tied())
    c.start(m)
    loss = F.cross_entropy(m(torch.tensor([[1, 2], [3, 6]])).view(-1, 7), torch.tensor([0, 1, 2, 3]))
    loss.backward()
    c.end()


@program
def model_list(c):
    a, b = fill(nn.ModuleList([nn.Sequential(nn.Linear(3, 3)), nn.Sequential(nn.Linear(3, 2))]))
    c.start([a, b])
    y = b(a(R(2, 3, grad=True))).sum()
    y.backward()
    c.end()


@program
def rnn(c):
    m = fill(nn.ModuleDict({"l": nn.LSTM(4, 3, batch_first=True), "g": nn.GRU(3, 2), "c": nn.LSTMCell(4, 2)}))
    c.start(m)
    h, (hn, cn) = m["l"](R(2, 5, 4, grad=True))
    o, _ = m["g"](h)
    k, _ = m["c"](R(2, 4, seed=2))
    loss = o.sum() + hn.sum() + k.sum()
    loss.backward()
    c.end()


@program
def args_lists(c):
    a, b = R(2, 3, grad=True), R(2, 3, seed=1, grad=True)
    c.start()
    r = [torch.cat([a, b], dim=0), torch.cat((a, b), 1), torch.stack((a, b)), torch.hstack([a, b]),
         torch.einsum("ij,kj->ik", a, b), torch.einsum("ij->i", [a]), torch.where(a > 0, a, b),
         torch.broadcast_tensors(a, b[0])[1], torch.meshgrid(a[0], b[0], indexing="ij")[0], torch.block_diag(a, b),
         torch.topk(a, 2)[0], torch.sort(b, dim=1, descending=True).values, torch.max(a, dim=1).values, torch.max(a, b),
         torch.split(a, (1, 2), dim=1)[1], torch.tensor_split(b, 2)[0], torch.cartesian_prod(a[0], b[0]),
         torch.addmm(a[:, :2], a, b.t()), torch.bmm(a.unsqueeze(0), b.t().unsqueeze(0)), torch.linalg.norm(a),
         torch.norm(b), torch.linalg.qr(a.t())[0], torch.roll(a, (1,), (0,)), torch.tensordot(a, b, dims=([1], [1])),
         torch.repeat_interleave(a, torch.tensor([1, 2]), dim=0), torch.gather(a, 1, torch.tensor([[0, 1], [2, 0]])),
         torch.cumsum(a, 0), torch.var(a, dim=1, unbiased=False), torch.std_mean(b)[0], torch.kthvalue(a, 1)[0]]
    loss = sum(t.sum() for t in r)
    loss.backward()
    c.end()


@program
def kwargs_only(c):
    a, b = R(2, 3, grad=True), R(4, 3, seed=1)
    c.start()
    r = [F.linear(input=a, weight=b, bias=None), torch.add(input=a, other=1), torch.matmul(input=a, other=b.t()),
         torch.mul(a, other=2.0), a.add(other=a), torch.sum(input=a, dim=0), torch.cat(tensors=[a, a]), torch.relu(input=a),
         F.cross_entropy(input=a, target=torch.tensor([0, 2]), reduction="sum", label_smoothing=0.1),
         F.layer_norm(input=a, normalized_shape=(3,), weight=None, bias=None, eps=1e-5), F.dropout(a, p=0.0), F.dropout(input=a, p=0.5, training=False)]
    loss = sum(t.sum() for t in r)
    loss.backward()
    c.end()


@program
def indexing(c):
    x = R(4, 5, 3, grad=True)
    c.start()
    y = x * 1
    r = [y[0], y[-1, 2], y[1:3], y[::2, 1:], y[..., 0], y[None].sum(), y[torch.tensor([0, 2])], y[y > 0], y[[0, 1], [2, 3]],
         y[:, torch.tensor([True, False, True, False, True])], y[1, :, torch.tensor([0, 2])]]
    z = y.clone()
    z[0] = 0
    z[1:3, 2] = 1.5
    z[..., 1] = torch.ones(4, 5)
    z[z > 1] = 0.5
    z[torch.tensor([3])] = y[0] * 2
    z[None, 0, 0, 0] = torch.tensor(7.0)
    w = torch.index_select(z, 1, torch.tensor([0, 4]))
    q = torch.take(z, torch.tensor([0, 5, 9]))
    loss = sum(t.sum() for t in r) + z.sum() + w.sum() + q.sum()
    loss.backward()
    c.end()


@program
def dunders(c):
    a, b = R(2, 3), R(2, 3, seed=1)
    i, j = torch.tensor([5, 3, 12]), torch.tensor([3, 2, 7])
    c.start()
    r = [a == b, a != b, a < b, a <= 0, a > 0.5, a >= b, (a > 0) & (b > 0), (a > 0) | (b > 0), (a > 0) ^ (b > 0), ~(a > 0),
         i & j, i | 1, i ^ j, i << 1, i >> j, 1 - a, 2 / (a + 3), 2.0 * a, 1 + a, a @ b.t(), -a, +a, abs(a), i // j, i % j, 7 // i, 7 % i,
         2 ** j, a // 1, a % 1, a.__radd__(2), a.__rpow__(2)]
    a == None, a != None  # noqa: B015, E711
    bool((a == a).all()), 5 in i, len(a), int(i[0]), float(a[0, 0])
    [t.shape for t in a], i[1].item(), i.tolist()
    s = a.clone()
    s += b
    s -= 1
    s *= 2
    s /= 4
    s **= 2
    k = i.clone()
    k |= 1
    k &= 7
    k ^= 2
    k <<= 1
    k >>= 1
    k //= 2
    k %= 3
    c.end()


@program
def functional(c):
    x, i = R(2, 3, 8, grad=True), torch.tensor([[1, 2], [0, 3]])
    img = R(1, 2, 6, 6, seed=3, grad=True)
    c.start()
    r = [F.conv1d(x, R(4, 3, 3, seed=1), padding=1), F.conv2d(img, R(3, 2, 3, 3, seed=2), bias=torch.ones(3), stride=2), F.conv_transpose2d(img, R(2, 2, 2, 2, seed=4)),
         F.max_pool2d(img, 2), F.avg_pool2d(img, 2), F.adaptive_avg_pool2d(img, (2, 2)), F.max_pool2d(img, 2, return_indices=True)[0],
         F.batch_norm(img, torch.zeros(2), torch.ones(2), training=True), F.layer_norm(x, (8,)), F.group_norm(img, 2), F.instance_norm(img),
         F.embedding(i, R(5, 4, seed=5)), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.softplus(x), F.elu(x), F.log_softmax(x, -1), F.softmax(x, 1),
         F.mse_loss(x, x.detach() + 1), F.l1_loss(x, x.detach() - 1), F.smooth_l1_loss(x, x.detach() * 2), F.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
         F.kl_div(F.log_softmax(x, -1), F.softmax(x.detach(), -1), reduction="batchmean"), F.nll_loss(F.log_softmax(x[0], -1), torch.tensor([0, 1, 2])),
         *([F.scaled_dot_product_attention(x, x, x), F.scaled_dot_product_attention(x, x, x, is_causal=True)] if hasattr(F, "scaled_dot_product_attention") else []),
         F.normalize(x), F.cosine_similarity(x, x + 1), F.one_hot(i, 5).float(),
         F.unfold(img, 2), F.pixel_shuffle(R(1, 4, 2, 2), 2), F.grid_sample(img, torch.zeros(1, 2, 2, 2), align_corners=False), F.glu(x), F.hardtanh(x), *([F.rms_norm(x, (8,))] if hasattr(F, "rms_norm") else []),
         F.threshold(x, 0.1, 0), F.dropout(x, 0.5), F.dropout(x, 0.0), F.alpha_dropout(x, 0.3, True), F.linear(x, R(5, 8)), F.linear(x[0], R(5, 8), torch.ones(5)), F.bilinear(x[0], x[1], R(2, 8, 8)),
         F.pairwise_distance(x[0], x[1]), F.cosine_embedding_loss(x[0], x[1], torch.ones(3)), F.triplet_margin_loss(x[0], x[1], x[1] + 1), F.multi_head_attention_forward(
            x.permute(2, 0, 1).expand(8, 2, 3), x.permute(2, 0, 1), x.permute(2, 0, 1), 3, 1, R(9, 3), R(9), None, None, False, 0.0, R(3, 3), R(3))[0]]
    loss = sum(t.sum() for t in r)
    loss.backward()
    c.end()


@program
def optimizers(c):
    m = fill(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)))
    opts = [torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9), torch.optim.Adam(m.parameters(), lr=0.01, foreach=True),
            torch.optim.AdamW(m.parameters(), lr=0.01, **({"fused": True} if "fused" in inspect.signature(torch.optim.AdamW).parameters else {})), torch.optim.RMSprop(m.parameters(), lr=0.01)]
    for o in opts:
        c.start(m)
        loss = m(R(4, 3, seed=8)).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        torch.nn.utils.clip_grad_value_(m.parameters(), 0.1)
        o.step()
        o.zero_grad()
        c.end()
