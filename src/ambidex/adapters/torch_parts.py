"""Composite layers of torch taken apart, so that they line up with hand-written code on the other side.

``nn.MultiheadAttention`` becomes four linear layers and an attention core; a multi-layer RNN becomes one layer each.
The parts are real modules that share storage with the composite's parameters: reading and writing their weights is
reading and writing the composite's.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from ambidex.adapters import torch_layers as tl
from ambidex.core.types import Layer

if TYPE_CHECKING:
    from ambidex.adapters.torch_tape import Tape


def _shared(tensor: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.detach(), requires_grad=False)


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    layer = nn.Linear(1, 1, bias=bias is not None, device="meta")
    layer.in_features, layer.out_features = weight.shape[1], weight.shape[0]
    layer.weight = _shared(weight)
    if bias is not None:
        layer.bias = _shared(bias)
    return layer.eval()


class Composite:
    """A module with named parts and a forward that goes through them."""

    def __init__(self, module: nn.Module, parts: dict[str, nn.Module]) -> None:
        self.module, self.parts = module, parts

    def weight_names(self, path: str, part: str) -> dict[str, str]:
        raise NotImplementedError

    def forward(self, tape: Tape, path: str, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class Attention(Composite):
    """``nn.MultiheadAttention`` as q_proj, k_proj, v_proj, attention, out_proj."""

    module: nn.MultiheadAttention

    def __init__(self, module: nn.MultiheadAttention) -> None:
        e = module.embed_dim
        if module._qkv_same_embed_dim:
            ws = [module.in_proj_weight[i * e : (i + 1) * e] for i in range(3)]
        else:
            ws = [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight]
        bs = [None] * 3 if module.in_proj_bias is None else [module.in_proj_bias[i * e : (i + 1) * e] for i in range(3)]
        parts: dict[str, nn.Module] = {
            n: _linear(w, b) for n, w, b in zip(("q_proj", "k_proj", "v_proj"), ws, bs, strict=True)
        }
        parts["out_proj"] = module.out_proj
        super().__init__(module, parts)

    def weight_names(self, path: str, part: str) -> dict[str, str]:
        dot = f"{path}." if path else ""
        if part == "out_proj":
            names = {"W": "out_proj.weight", "B": "out_proj.bias"}
            return {r: dot + n for r, n in names.items() if r == "W" or self.module.out_proj.bias is not None}
        i, e = ("q_proj", "k_proj", "v_proj").index(part), self.module.embed_dim
        cut = f"[{i * e}:{(i + 1) * e}]"
        weight = f"in_proj_weight{cut}" if self.module._qkv_same_embed_dim else f"{part}_weight"
        names = {"W": dot + weight}
        if self.module.in_proj_bias is not None:
            names["B"] = dot + f"in_proj_bias{cut}"
        return names

    def forward(
        self,
        tape: Tape,
        path: str,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        m = self.module
        if not m.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        h, d = m.num_heads, m.head_dim
        b, s = query.shape[0], key.shape[1]
        q, k, v = (self.parts[n](t) for n, t in (("q_proj", query), ("k_proj", key), ("v_proj", value)))
        tape.depth += 1  # cutting into heads is part of the core, not of the user's code
        try:
            mask = _mask(key_padding_mask, attn_mask, b, h, s)
        finally:
            tape.depth -= 1
        attrs = {
            "scale": 1 / math.sqrt(d),
            "is_causal": False,
            "num_heads": h,
            "masked_row": "nan" if need_weights else "zero",
        }
        layer = Layer(
            f"{path}.attention" if path else "attention",
            "Attention",
            attrs,
            cls="MultiheadAttention",
            layout="BTE",
            source=m.__dict__.get("_ambidex_source"),
        )

        def core(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
            heads = lambda t: t.view(t.shape[0], t.shape[1], h, d).transpose(1, 2)  # noqa: E731
            if mask is not None and mask.dtype != torch.bool:
                mask = mask.to(q.dtype)
            p = m.dropout if m.training else 0.0
            if not need_weights:
                out = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), mask, p)
                return out.transpose(1, 2).flatten(2)
            scores = heads(q) @ heads(k).transpose(-1, -2) / math.sqrt(d)
            if mask is not None:
                scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
            probs = F.dropout(scores.softmax(-1), p, m.training)
            return (probs @ heads(v)).transpose(1, 2).flatten(2), probs

        given = (q, k, v) if mask is None else (q, k, v, mask)
        made = tape.execute(layer, core, given, {}, leaf=True)
        context, probs = made if need_weights else (made, None)
        out = self.parts["out_proj"](context)
        if probs is not None and average_attn_weights:
            tape.depth += 1
            try:
                probs = probs.mean(1)
            finally:
                tape.depth -= 1
        return (out if m.batch_first else out.transpose(0, 1)), probs


def _mask(padding: torch.Tensor | None, attn: torch.Tensor | None, b: int, h: int, s: int) -> torch.Tensor | None:
    """Both masks of ``nn.MultiheadAttention`` as one: boolean (True = may be seen) when both are, else additive."""
    if padding is None and attn is None:
        return None
    if attn is not None and attn.dim() == 3:
        attn = attn.view(b, h, *attn.shape[-2:])
    booleans = all(t is None or t.dtype == torch.bool for t in (padding, attn))
    made: torch.Tensor | None = None
    for t in (None if padding is None else padding.view(b, 1, 1, s), attn):
        if t is None:
            continue
        if booleans:
            t = ~t
            made = t if made is None else made & t
        else:
            if t.dtype == torch.bool:
                t = torch.zeros(t.shape).masked_fill(t, -torch.inf)
            made = t if made is None else made + t
    return made


def _turned(x: Any, lengths: torch.Tensor | None, batch_first: bool) -> torch.Tensor:
    """Every sequence in reverse; padding stays behind."""
    time = 1 if batch_first else 0
    if lengths is None:
        return x.flip(time)
    steps = torch.arange(x.shape[time])
    places = torch.where(steps[None] < lengths[:, None], lengths[:, None] - 1 - steps[None], steps[None])
    places = places if batch_first else places.T
    return x.gather(time, places[..., None].expand_as(x))


@cache
def _backward(cls: type) -> type:
    """A recurrent class that reads its input from the end and hands its steps on in the input's order."""
    rnn = nn.utils.rnn

    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        if not isinstance(input, rnn.PackedSequence):
            out, state = cls.forward(self, _turned(input, None, self.batch_first), hx)
            return _turned(out, None, self.batch_first), state
        padded, lengths = rnn.pad_packed_sequence(input, batch_first=self.batch_first)
        pack = partial(rnn.pack_padded_sequence, lengths=lengths, batch_first=self.batch_first, enforce_sorted=False)
        out, state = cls.forward(self, pack(_turned(padded, lengths, self.batch_first)), hx)
        back, _ = rnn.pad_packed_sequence(out, batch_first=self.batch_first)
        return pack(_turned(back, lengths, self.batch_first)), state

    return type(cls.__name__, (cls,), {"forward": forward, "backward_in_time": True, "__module__": cls.__module__})


def plain(module: nn.Module) -> nn.Module:
    """The module whose class has a canonical translation."""
    return module.__dict__.get("plain", module)  # type: ignore[no-any-return]


class Stack(Composite):
    """A multi-layer or bidirectional RNN/LSTM/GRU as one single-layer module for each layer and direction."""

    def __init__(self, module: nn.RNNBase) -> None:
        self.steps: list[list[tuple[str, str]]] = []  # per layer: (part name, suffix of its weights)
        parts: dict[str, nn.Module] = {}
        for i in range(module.num_layers):
            width = module.input_size if i == 0 else module.hidden_size * (2 if module.bidirectional else 1)
            extra = {"nonlinearity": module.nonlinearity} if isinstance(module, nn.RNN) else {}
            step: list[tuple[str, str]] = []
            for word in ("forward", "reverse") if module.bidirectional else ("",):
                name = ".".join(x for x in (str(i) if module.num_layers > 1 else "", word) if x)
                suffix = f"_l{i}_reverse" if word == "reverse" else f"_l{i}"
                cls = _backward(type(module)) if word == "reverse" else type(module)
                part = cls(width, module.hidden_size, 1, bias=module.bias, batch_first=module.batch_first, **extra)
                for weight in list(part._parameters):
                    part._parameters[weight] = _shared(getattr(module, weight.replace("_l0", suffix)))
                part._init_flat_weights()
                if word == "reverse":  # the same weights in the plain class, which is the one that has a translation
                    plain = type(module)(
                        width, module.hidden_size, 1, bias=module.bias, batch_first=module.batch_first, **extra
                    )
                    plain._parameters.update(part._parameters)
                    part.__dict__["plain"] = plain
                parts[name] = part.eval()
                step.append((name, suffix))
            self.steps.append(step)
        super().__init__(module, parts)

    def weight_names(self, path: str, part: str) -> dict[str, str]:
        suffix = next(s for step in self.steps for name, s in step if name == part)
        dot = f"{path}." if path else ""
        return {
            role: " + ".join(dot + n.replace("_l0", suffix) for n in names)
            for role, names in tl.weight_sources(plain(self.parts[part])).items()
        }

    def forward(self, tape: Tape, path: str, input: Any, hx: Any = None) -> Any:
        m: Any = self.module
        states: list[Any] = []
        for i, step in enumerate(self.steps):
            outs: list[Any] = []
            for name, _ in step:
                n = len(states)
                cut = slice(n, n + 1)
                start = None if hx is None else tuple(t[cut] for t in hx) if isinstance(hx, tuple) else hx[cut]
                out, state = self.parts[name](input) if start is None else self.parts[name](input, start)
                outs.append(out)
                states.append(state)
            input = outs[0] if len(outs) == 1 else self._joined(tape, path, outs)
            if m.training and m.dropout and i + 1 < m.num_layers and isinstance(input, torch.Tensor):
                input = F.dropout(input, m.dropout, True)
        if isinstance(states[0], tuple):
            return input, tuple(_cat_states(tape, path, list(s)) for s in zip(*states, strict=True))
        return input, _cat_states(tape, path, states)

    def _joined(self, tape: Tape, path: str, outs: list[Any]) -> Any:
        """Both directions side by side, as one call."""
        first = bool(self.module.batch_first)
        layer = Layer(f"{path}:concat", "Concat", {"axis": -1}, cls="concat", functional=True)

        def join(a: Any, b: Any) -> Any:
            if isinstance(a, torch.Tensor):
                return torch.cat([a, b], -1)
            rnn = nn.utils.rnn
            (x, lengths), (y, _) = (rnn.pad_packed_sequence(t, batch_first=first) for t in (a, b))
            return rnn.pack_padded_sequence(torch.cat([x, y], -1), lengths, first, enforce_sorted=False)

        return tape.execute(layer, join, tuple(outs), {}, leaf=False, batch_first=first)


def _cat_states(tape: Tape, path: str, states: list[torch.Tensor]) -> torch.Tensor:
    if len(states) == 1:
        return states[0]
    layer = Layer(f"{path}:states", "Concat", {"axis": 0}, cls="cat", functional=True)
    return tape.execute(layer, lambda *s: torch.cat(s, 0), tuple(states), {}, leaf=False)  # type: ignore[no-any-return]


def composite_of(m: nn.Module) -> Composite | None:
    """The composite of a module, or None. Rare settings (bias_k, add_zero_attn, projections) stay whole."""
    if isinstance(m, nn.MultiheadAttention) and m.bias_k is None and not m.add_zero_attn:
        return Attention(m)
    if isinstance(m, nn.RNNBase) and (m.num_layers > 1 or m.bidirectional) and not m.proj_size:
        return Stack(m)
    return None
