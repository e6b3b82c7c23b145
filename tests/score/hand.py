"""The weights of a pair: random values that hide nothing, the carry by hand, and the weight faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass
class Link:
    """Weights that belong together, and how to turn the arrays of one side into those of the other."""

    torch: list[Any]
    keras: list[Any]
    to_keras: Callable[[list[Array]], list[Array]]
    to_torch: Callable[[list[Array]], list[Array]]


def array_of(value: Any) -> Array:
    return np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)


def randomise_torch(module: Any, rng: np.random.Generator) -> None:
    import torch

    padding_rows = {
        f"{name}.weight": part.padding_idx
        for name, part in module.named_modules()
        if getattr(part, "padding_idx", None) is not None
    }
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if not value.is_floating_point() or getattr(value, "fixed", False):
                continue
            fan = int(np.prod(value.shape[1:])) if value.ndim > 1 else 1
            new = drawn(name.rsplit(".", 1)[-1], tuple(value.shape), fan, rng)
            if name in padding_rows:
                new[padding_rows[name]] = 0.0
            value.copy_(torch.from_numpy(new))


def randomise_keras(model: Any, rng: np.random.Generator) -> None:
    for variable in model.weights:
        if "seed" in variable.path or not str(variable.dtype).startswith("float"):
            continue
        shape = tuple(int(n) for n in variable.shape)
        fan = int(np.prod(shape[:-1])) if len(shape) > 1 else 1
        variable.assign(drawn(variable.path.rsplit("/", 1)[-1], shape, fan, rng))


def drawn(name: str, shape: tuple[int, ...], fan: int, rng: np.random.Generator) -> Array:
    noise = rng.standard_normal(shape)
    if name in ("running_var", "moving_variance"):
        new = rng.uniform(0.3, 1.5, shape)
    elif name in ("running_mean", "moving_mean"):
        new = 0.3 * noise
    elif len(shape) <= 1 and name in ("weight", "gamma", "scale", "g", "gain"):
        new = 1.0 + 0.25 * noise
    elif len(shape) <= 1:
        new = 0.2 * noise
    elif name in ("embeddings", "embedding"):
        new = 0.7 * noise
    else:
        new = 1.3 * noise / np.sqrt(fan)
    return np.asarray(new, np.float32)


def transfer(link: Link, torch_to_keras: bool, strict: bool) -> None:
    """Carry one link. In a faulty candidate a parameter may be missing or of another shape: it is then left alone."""
    import torch

    if torch_to_keras:
        values = link.to_keras([array_of(v) for v in link.torch])
        for variable, value in zip(link.keras, values, strict=True):
            if variable is None:
                assert not strict, f"no partner for a weight of shape {value.shape}"
            elif tuple(variable.shape) != value.shape:
                assert not strict, f"{variable.path}: {tuple(variable.shape)} against {value.shape}"
            else:
                variable.assign(value)
        return
    values = link.to_torch([array_of(v) for v in link.keras])
    for parameter, value in zip(link.torch, values, strict=True):
        if parameter is None:
            assert not strict, f"no partner for a weight of shape {value.shape}"
        elif tuple(parameter.shape) != value.shape:
            assert not strict, f"{tuple(parameter.shape)} against {value.shape}"
        else:
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(np.array(value, order="C")))


def linked(t: Any, k: Any) -> Link:
    """A torch parameter and a Keras variable of the same layout."""
    return Link([t], [k], lambda v: v, lambda v: v)


def _with_bias(t: Any, k: Any, kernel: str, there: Any, back: Any, bias_name: str = "bias") -> list[Link]:
    links = [Link([t.weight], [getattr(k, kernel)], lambda v: [there(v[0])], lambda v: [back(v[0])])]
    if t.bias is not None or getattr(k, bias_name, None) is not None:
        if t.bias is None and k.bias is not None:  # an extra parameter of a Keras candidate keeps its own value
            return links
        links.append(linked(t.bias, getattr(k, bias_name, None)))
    return links


def dense(t: Any, k: Any) -> list[Link]:
    return _with_bias(t, k, "kernel", lambda w: w.T, lambda w: w.T)


def conv(t: Any, k: Any) -> list[Link]:
    """Convolution and transposed convolution: both reverse all axes but the spatial order."""

    def there(w: Array) -> Array:
        return w.transpose(*range(2, w.ndim), 1, 0)

    def back(w: Array) -> Array:
        return w.transpose(w.ndim - 1, w.ndim - 2, *range(w.ndim - 2))

    return _with_bias(t, k, "kernel", there, back)


def depthwise(t: Any, k: Any) -> list[Link]:
    def there(w: Array) -> Array:
        return w[:, 0].transpose(1, 2, 0)[..., None]

    return _with_bias(t, k, "kernel", there, lambda w: w[..., 0].transpose(2, 0, 1)[:, None])


def norm(t: Any, k: Any) -> list[Link]:
    """Layer, group and batch normalisation, with running statistics where there are any."""
    links = [linked(getattr(t, "weight", None), getattr(k, "gamma", None))]
    if getattr(k, "gamma", None) is None and hasattr(k, "scale") and not isinstance(k.scale, bool):
        links = [linked(t.weight, k.scale)]
    if getattr(t, "bias", None) is not None and hasattr(k, "beta"):
        links.append(linked(t.bias, k.beta))
    if getattr(t, "running_mean", None) is not None:
        links += [linked(t.running_mean, k.moving_mean), linked(t.running_var, k.moving_variance)]
    return links


def embedding(t: Any, k: Any) -> list[Link]:
    return [linked(t.weight, k.embeddings)]


def lstm(t: Any, k: Any, suffix: str = "l0") -> list[Link]:
    """One direction of one torch LSTM layer; torch's two biases become one, and all of it goes to the first back."""
    w, r = getattr(t, f"weight_ih_{suffix}"), getattr(t, f"weight_hh_{suffix}")
    b, c = getattr(t, f"bias_ih_{suffix}", None), getattr(t, f"bias_hh_{suffix}", None)
    cell = k.cell

    def there(v: list[Array]) -> list[Array]:
        return [v[0].T, v[1].T, v[2] + v[3]]

    def back(v: list[Array]) -> list[Array]:
        return [v[0].T, v[1].T, v[2], np.zeros_like(v[2])]

    return [Link([w, r, b, c], [cell.kernel, cell.recurrent_kernel, cell.bias], there, back)]


def _zrh(w: Array) -> Array:
    """The gates of a GRU, first axis, between torch's r, z, n and Keras' z, r, h (its own inverse)."""
    r, z, n = np.split(w, 3, axis=0)
    return np.concatenate([z, r, n], axis=0)


def gru(t: Any, k: Any, suffix: str = "l0") -> list[Link]:
    w, r = getattr(t, f"weight_ih_{suffix}"), getattr(t, f"weight_hh_{suffix}")
    b, c = getattr(t, f"bias_ih_{suffix}"), getattr(t, f"bias_hh_{suffix}")
    cell = k.cell

    def there(v: list[Array]) -> list[Array]:
        two = np.stack([_zrh(v[2]), _zrh(v[3])])
        bias = two if len(cell.bias.shape) == 2 else two.sum(0)
        return [_zrh(v[0]).T, _zrh(v[1]).T, bias]

    def back(v: list[Array]) -> list[Array]:
        return [_zrh(v[0].T), _zrh(v[1].T), _zrh(v[2][0]), _zrh(v[2][1])]

    return [Link([w, r, b, c], [cell.kernel, cell.recurrent_kernel, cell.bias], there, back)]


def _one_as(shape: tuple[int, ...], v: list[Array]) -> list[Array]:
    return [v[0].reshape(shape)]


def _reshaped(weight: Any, kernel: Any) -> Link:
    """A Linear's weight and an einsum kernel (in, heads, size)."""
    shape = tuple(kernel.shape)
    return Link([weight], [kernel], lambda v: [v[0].T.reshape(shape)], lambda v: [v[0].reshape(v[0].shape[0], -1).T])


def keras_heads(t_linears: Sequence[Any], k: Any) -> list[Link]:
    """Four torch Linears (query, key, value, output) and a Keras MultiHeadAttention's einsum kernels."""
    links: list[Link] = []
    for t, k_part in zip(t_linears[:3], (k._query_dense, k._key_dense, k._value_dense), strict=True):
        links.append(_reshaped(t.weight, k_part.kernel))
        if k_part.bias is not None and t.bias is not None:
            bias_shape = tuple(k_part.bias.shape)
            links.append(Link([t.bias], [k_part.bias], partial(_one_as, bias_shape), partial(_one_as, (-1,))))
    out = k._output_dense
    shape = tuple(out.kernel.shape)
    links.append(Link([t_linears[3].weight], [out.kernel], lambda v: [v[0].T.reshape(shape)],
                      lambda v: [v[0].reshape(-1, v[0].shape[-1]).T]))  # fmt: skip
    if out.bias is not None:
        links.append(linked(t_linears[3].bias, out.bias))
    return links


def packed(t: Any, query: Any, key: Any, value: Any, output: Any) -> list[Link]:
    """A torch MultiheadAttention with packed projections and four Keras Dense layers."""

    def there(v: list[Array]) -> list[Array]:
        return [*(w.T for w in np.split(v[0], 3, axis=0)), *np.split(v[1], 3)]

    def back(v: list[Array]) -> list[Array]:
        return [np.concatenate([w.T for w in v[:3]], axis=0), np.concatenate(v[3:])]

    three = [query, key, value]
    return [
        Link([t.in_proj_weight, t.in_proj_bias], [d.kernel for d in three] + [d.bias for d in three], there, back),
        *dense(t.out_proj, output),
    ]


def packed_heads(t: Any, k: Any) -> list[Link]:
    """A torch MultiheadAttention with packed projections and a Keras MultiHeadAttention."""
    parts = [k._query_dense, k._key_dense, k._value_dense]
    shape = tuple(parts[0].kernel.shape)

    def there(v: list[Array]) -> list[Array]:
        return [*(w.T.reshape(shape) for w in np.split(v[0], 3)), *(b.reshape(shape[1:]) for b in np.split(v[1], 3))]

    def back(v: list[Array]) -> list[Array]:
        width = v[0].shape[0]
        return [np.concatenate([w.reshape(width, -1).T for w in v[:3]]), np.concatenate([b.reshape(-1) for b in v[3:]])]

    out = k._output_dense
    final = tuple(out.kernel.shape)
    return [
        Link([t.in_proj_weight, t.in_proj_bias], [p.kernel for p in parts] + [p.bias for p in parts], there, back),
        Link([t.out_proj.weight], [out.kernel], lambda v: [v[0].T.reshape(final)],
             lambda v: [v[0].reshape(-1, v[0].shape[-1]).T]),
        linked(t.out_proj.bias, out.bias),
    ]  # fmt: skip


# --- weight faults -------------------------------------------------------------------------------------------------


def change(weight: Any, how: Callable[[Array], Array]) -> None:
    """Rewrite one weight of a candidate, whichever framework it is of."""
    value = np.array(how(array_of(weight).copy()), np.float32, order="C")
    if hasattr(weight, "assign"):
        weight.assign(value)
    else:
        import torch

        with torch.no_grad():
            weight.copy_(torch.from_numpy(value))


def swap(a: Any, b: Any) -> None:
    one, two = array_of(a).copy(), array_of(b).copy()
    change(a, lambda _: two)
    change(b, lambda _: one)


def to_half(value: Array) -> Array:
    return value.astype(np.float16).astype(np.float32)


def to_bfloat16(value: Array) -> Array:
    bits = value.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def stale(value: Array) -> Array:
    """The same layer from an earlier checkpoint: a little off everywhere."""
    return value + 0.05 * np.random.default_rng(99).standard_normal(value.shape)
