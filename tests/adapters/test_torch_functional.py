"""Functions of torch: what a TorchFunctionMode sees, translated and evaluated in float64, is what torch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ambidex.adapters import torch_layers as tl
from ambidex.adapters.reference_ import evaluate, supports
from ambidex.errors import UnsupportedError


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers with an offset, so that the mean is not zero."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 1.5 + 0.3


def assert_close(found: np.ndarray, wanted: torch.Tensor) -> None:
    assert found.shape == tuple(wanted.shape)
    np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=1e-9, atol=1e-9)


X1, X2 = draw(2, 4, 11), draw(2, 4, 9, 12)
IDS = torch.tensor([[1, 0, 3], [4, 4, 2]])


class Recorder(TorchFunctionMode):
    """What the first function called inside is named and given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Any, Any, Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
        self.calls.append((name, args, kwargs, result := func(*args, **kwargs)))
        return result


def tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


A, B, M = draw(3, 4, 6), draw(3, 4, 6, seed=3), draw(3, 6, 4, seed=4)
Q, K, W = draw(2, 3, 5, 4), draw(2, 3, 7, 4, seed=5), draw(2, 3, 7, 4, seed=6)
SEEN = torch.arange(7)[None, None, None] < torch.tensor([7, 4])[:, None, None, None]
ROW = torch.cat([SEEN[:1], torch.zeros(1, 1, 1, 7, dtype=torch.bool)])
FOUR, SIX = draw(4, seed=7), draw(6, seed=8)

FUNCTIONS: dict[str, Callable[[], Any]] = {
    **{
        name: (lambda name=name: getattr(F, name)(A))
        for name in (
            "relu",
            "relu6",
            "gelu",
            "leaky_relu",
            "elu",
            "celu",
            "selu",
            "silu",
            "hardswish",
            "hardsigmoid",
            "hardtanh",
            "mish",
            "softplus",
            "tanh",
            "sigmoid",
            "logsigmoid",
            "softsign",
            "tanhshrink",
            "softshrink",
            "hardshrink",
            "glu",
        )
    },
    **{
        f"torch.{name}": (lambda name=name: getattr(torch, name)(A.abs() + 0.1))
        for name in (
            "sqrt",
            "rsqrt",
            "exp",
            "log",
            "log1p",
            "expm1",
            "abs",
            "neg",
            "erf",
            "sin",
            "cos",
            "reciprocal",
            "square",
            "sign",
            "floor",
            "ceil",
            "round",
            "tanh",
            "sigmoid",
            "relu",
        )
    },
    "gelu tanh": lambda: F.gelu(A, approximate="tanh"),
    "leaky relu 0.2": lambda: F.leaky_relu(A, 0.2),
    "leaky relu by name": lambda: F.leaky_relu(A, negative_slope=0.3),
    "elu 0.5": lambda: F.elu(A, 0.5),
    "softplus 2 1": lambda: F.softplus(A, 2, 1),
    "hardtanh range": lambda: F.hardtanh(A, -0.5, 0.5),
    "threshold": lambda: F.threshold(A, 0.1, 7.0),
    "clamp": lambda: A.clamp(-0.5, 0.5),
    "clamp min": lambda: A.clamp(min=0.1),
    "clamp_max": lambda: torch.clamp_max(A, 0.2),
    "softmax": lambda: F.softmax(A, dim=1),
    "softmax method": lambda: A.softmax(-1),
    "log_softmax": lambda: torch.log_softmax(A, 2),
    "prelu": lambda: F.prelu(A, FOUR),
    "dropout": lambda: F.dropout(A, 0.3, training=False),
    "add": lambda: A + B,
    "add alpha": lambda: torch.add(A, B, alpha=2),
    "add number": lambda: A + 1.5,
    "radd": lambda: 1.5 + A,
    "sub": lambda: A - B,
    "rsub": lambda: 1 - A,
    "torch.rsub": lambda: torch.rsub(A, 2.0),
    "mul": lambda: A * B,
    "rmul": lambda: 2 * A,
    "div": lambda: A / B,
    "rdiv": lambda: 2 / A,
    "floor div": lambda: torch.div(A, B, rounding_mode="floor"),
    "mod": lambda: A % 0.7,
    "pow": lambda: A.abs() ** 1.5,
    "torch.pow": lambda: torch.pow(A, 2),
    "rpow": lambda: 2**A,
    "add_": lambda: A.clone().add_(B),
    "mul_": lambda: A.clone().mul_(3.0),
    "iadd": lambda: A.clone().__iadd__(B),
    "maximum": lambda: torch.maximum(A, B),
    "max of two": lambda: torch.max(A, B),
    "greater": lambda: A > 0,
    "equal": lambda: A == B,
    "not equal": lambda: A != B,
    "less": lambda: A.lt(B),
    "and": lambda: SEEN & ROW,
    "or": lambda: SEEN | ROW,
    "not": lambda: ~SEEN,
    "matmul": lambda: A @ M,
    "bmm": lambda: torch.bmm(A, M),
    "mm": lambda: torch.mm(A[0], M[0]),
    "einsum": lambda: torch.einsum("bij, bjk -> bik", A, M),
    "cat": lambda: torch.cat([A, B], 1),
    "cat by name": lambda: torch.concat((A, B), dim=-1),
    "stack": lambda: torch.stack([A, B]),
    "stack last": lambda: torch.stack([A, B], -1),
    "flatten": lambda: A.flatten(1),
    "flatten all": lambda: torch.flatten(A),
    "reshape": lambda: A.reshape(3, -1),
    "view": lambda: A.view((3, 24)),
    "view_as": lambda: A.view_as(M),
    "unflatten": lambda: A.unflatten(-1, (2, 3)),
    "permute": lambda: A.permute(0, 2, 1),
    "torch.permute": lambda: torch.permute(A, (2, 0, 1)),
    "transpose": lambda: A.transpose(-1, 1),
    "swapaxes": lambda: A.swapaxes(0, 1),
    "t": lambda: A[0].t(),
    "T": lambda: A[0].T,
    "mT": lambda: A.mT,
    "movedim": lambda: A.movedim(0, -1),
    "squeeze": lambda: A[:, :1].squeeze(1),
    "squeeze all": lambda: A[:, :1].squeeze(),
    "unsqueeze": lambda: A.unsqueeze(1),
    "unsqueeze last": lambda: A.unsqueeze(-1),
    "expand": lambda: A[:1].expand(5, -1, -1),
    "expand_as": lambda: A[:1].expand_as(B),
    "repeat": lambda: A.repeat(1, 2, 1),
    "repeat_interleave": lambda: A.repeat_interleave(2, dim=1),
    "roll": lambda: A.roll(2, 1),
    "flip": lambda: A.flip(1),
    "tril": lambda: A.tril(-1),
    "triu": lambda: torch.triu(A, diagonal=1),
    "mean": lambda: A.mean(),
    "mean axes": lambda: A.mean((1, 2)),
    "mean keep": lambda: torch.mean(A, dim=1, keepdim=True),
    "sum": lambda: A.sum(-1),
    "amax": lambda: A.amax(dim=(0, 2)),
    "max": lambda: A.max(),
    "prod": lambda: A.prod(1),
    "max axis": lambda: A.max(1),
    "logsumexp": lambda: A.logsumexp(1),
    "var": lambda: A.var(1),
    "var biased": lambda: A.var(1, unbiased=False),
    "var correction": lambda: A.var(dim=(1, 2), correction=0, keepdim=True),
    "std": lambda: A.std(-1, keepdim=True),
    "std positional": lambda: A.std(-1, False, True),
    "norm": lambda: A.norm(dim=1),
    "norm p": lambda: A.norm(1, -1, True),
    "linalg": lambda: torch.linalg.norm(A, dim=1),
    "argmax": lambda: A.argmax(1),
    "cumsum": lambda: A.cumsum(1),
    "normalize": lambda: F.normalize(A, dim=-1),
    "max_pool1d": lambda: F.max_pool1d(X1, 2),
    "max_pool2d": lambda: F.max_pool2d(X2, 3, 2, 1, ceil_mode=True),
    "max_pool2d indices": lambda: F.max_pool2d(X2, 2, return_indices=True),
    "avg_pool2d": lambda: F.avg_pool2d(X2, 3, 2, 1, False, False),
    "avg_pool1d": lambda: F.avg_pool1d(X1, 3),
    "lp_pool2d": lambda: F.lp_pool2d(X2, 2, 2),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(X2, (3, 5)),
    "adaptive to one": lambda: F.adaptive_avg_pool2d(X2, 1),
    "adaptive_max_pool1d": lambda: F.adaptive_max_pool1d(X1, 3),
    "interpolate": lambda: F.interpolate(X2, scale_factor=2, mode="nearest"),
    "interpolate bilinear": lambda: F.interpolate(X2, size=(5, 30), mode="bilinear", align_corners=False),
    "interpolate antialias": lambda: F.interpolate(X2, size=(5, 30), mode="bilinear", antialias=True),
    "interpolate bicubic antialias": lambda: F.interpolate(X2, size=(5, 7), mode="bicubic", antialias=True),
    "interpolate area": lambda: F.interpolate(X2, size=(4, 5), mode="area"),
    "pad": lambda: F.pad(A, (1, 2)),
    "pad two axes": lambda: F.pad(A, (1, 2, 0, 1), value=3.0),
    "pad reflect": lambda: F.pad(A, (1, 2), mode="reflect"),
    "pad replicate": lambda: F.pad(A, (1, 2), "replicate"),
    "linear": lambda: F.linear(A, draw(2, 6), draw(2)),
    "linear by name": lambda: F.linear(A, bias=draw(2), weight=draw(2, 6)),
    "conv2d": lambda: F.conv2d(X2, draw(6, 2, 3, 3), draw(6), 2, 1, 1, 2),
    "conv1d same": lambda: F.conv1d(X1, draw(3, 4, 4), padding="same"),
    "conv_transpose2d": lambda: F.conv_transpose2d(X2, draw(4, 3, 3, 3), None, 2, 1, 1),
    "layer_norm": lambda: F.layer_norm(A, (6,), SIX, SIX),
    "layer_norm bias": lambda: F.layer_norm(A, (4, 6), eps=1e-3),
    "rms_norm": lambda: F.rms_norm(A, (6,), SIX),
    "group_norm": lambda: F.group_norm(X2, 2, FOUR, FOUR),
    "instance_norm": lambda: F.instance_norm(X2, weight=FOUR),
    "batch_norm": lambda: F.batch_norm(X2, FOUR, FOUR.abs() + 1, bias=FOUR, eps=1e-3),
    "local_response_norm": lambda: F.local_response_norm(X2, 3),
    "embedding": lambda: F.embedding(IDS, draw(5, 3)),
    "one_hot": lambda: F.one_hot(IDS, 6),
    "attention": lambda: F.scaled_dot_product_attention(Q, K, W),
    "attention mask": lambda: F.scaled_dot_product_attention(Q, K, W, SEEN),
    "attention masked row": lambda: F.scaled_dot_product_attention(Q, K, W, ROW),
    "attention additive": lambda: F.scaled_dot_product_attention(Q, K, W, draw(2, 1, 5, 7)),
    "attention heads mask": lambda: F.scaled_dot_product_attention(Q, K, W, draw(3, 5, 7)),
    "attention causal": lambda: F.scaled_dot_product_attention(Q, K, W, is_causal=True, scale=0.3),
    "attention grouped": lambda: F.scaled_dot_product_attention(Q, K[:, :1], W[:, :1], enable_gqa=True),
    "attention rank 3": lambda: F.scaled_dot_product_attention(A, B, B),
    "masked_fill": lambda: A.masked_fill(A > 0, -1e9),
    "where": lambda: torch.where(A > 0, A, B),
    "where number": lambda: torch.where(A > 0, A, 0.5),
    "item": lambda: A[:, 1:3],
    "item int": lambda: A[:, 0],
    "item ellipsis": lambda: A[..., -1],
    "item new": lambda: A[:, None, ::2],
    "select": lambda: A.select(1, 2),
    "narrow": lambda: A.narrow(1, 1, 2),
    "chunk": lambda: A.chunk(2, 1),
    "chunk uneven": lambda: A.chunk(4, -1),
    "split": lambda: A.split(2, 1),
    "split sizes": lambda: torch.split(A, [1, 3], dim=1),
    "unbind": lambda: A.unbind(1),
    "gather": lambda: A.gather(1, torch.zeros(3, 2, 6, dtype=torch.int64) + 1),
    "index_select": lambda: A.index_select(1, torch.tensor([2, 0])),
    "long": lambda: A.long(),
    "to int": lambda: A.to(torch.int32),
    "to by name": lambda: A.to(dtype=torch.int64),
    "bool": lambda: A.bool(),
    "pixel_shuffle": lambda: F.pixel_shuffle(X2, 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_equals_its_reference(name: str) -> None:
    with torch.no_grad(), Recorder() as mode:
        FUNCTIONS[name]()
    called, args, kwargs, result = mode.calls[-1]
    meaning = tl.functional(called, args, kwargs)
    assert meaning is not None, called
    op, attrs = meaning
    assert supports(op)
    given = [t.numpy() for t in tensors((args, kwargs))]
    if name.startswith(("add_", "mul_", "iadd")):
        given[0] = A.numpy()
    found = evaluate(op, attrs, {}, given)
    wanted = tensors(result)
    if op in ("ReduceMax", "MaxPool"):
        wanted = wanted[:1]
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        if theirs.dtype == torch.float64:
            assert_close(mine, theirs)
        else:
            assert mine.shape == tuple(theirs.shape)
            np.testing.assert_array_equal(mine, theirs.numpy())


def test_functions_without_a_name_are_left_alone() -> None:
    assert tl.functional("fft_fft", (A,), {}) is None
    assert tl.functional("view", (A, "x"), {}) is None  # called in a way that the table does not know
    assert tl.functional("__getitem__", (A, A > 0), {}) == ("Slice", {"index": ["tensor"]})
    with pytest.raises(UnsupportedError):
        evaluate("Slice", {"index": ["tensor"]}, {}, [A.numpy()])
