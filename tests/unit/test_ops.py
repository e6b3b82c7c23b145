"""Canonical operators: the table, and comparing attributes by meaning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ambidex.core import ops
from ambidex.errors import UnsupportedError


def test_the_table_and_its_page_name_the_same_operators() -> None:
    page = (Path(__file__).parents[2] / "docs" / "canonical.md").read_text()
    cells = re.findall(r"^\| ([A-Z][^|]*) \|", page.split("## Layout")[0], flags=re.M)
    written = {w for cell in cells for w in re.findall(r"[A-Z][A-Za-z0-9]+", re.sub(r"\([^)]*\)", "", cell))}
    assert written == set(ops.names())


def test_every_attribute_of_the_table_is_on_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "canonical.md").read_text()
    missing = {n for op in ops.names() for n in ops.spec(op).attrs if not re.search(rf"\b{re.escape(n)}\b", page)}
    assert missing == set()


def test_spec_and_families() -> None:
    assert ops.spec("LSTM").roles == ("W", "R", "B")
    assert ops.spec("BatchNormalization").training_only == {"momentum", "unbiased"}
    assert ops.known("Gelu") and not ops.known("gelu")
    with pytest.raises(UnsupportedError, match="gelu"):
        ops.spec("gelu")
    assert ops.same_family("LSTM", "GRU") and ops.same_family("Gelu", "Relu") and ops.same_family("x", "x")
    assert not ops.same_family("Gelu", "LayerNormalization") and not ops.same_family("x", "y")


@pytest.mark.parametrize(("op", "a", "b", "expected"), [
    ("LayerNormalization", {"epsilon": 1e-5}, {}, set()),
    ("LayerNormalization", {"epsilon": 1e-5}, {"epsilon": 1e-3}, {"epsilon"}),
    ("LayerNormalization", {"epsilon": 1e-5}, {"epsilon": 1e-5 * (1 + 1e-14)}, set()),
    ("LayerNormalization", {"axis": [-1]}, {"axis": [-2, -1]}, {"axis"}),
    ("Conv", {"strides": [1, 1], "pads": [0] * 4}, {"strides": 1, "dilations": (1, 1)}, set()),
    ("Conv", {"kernel_shape": [3]}, {"kernel_shape": [3], "pads": [1, 1], "pad_mode": "reflect"}, {"pads", "pad_mode"}),
    ("Conv", {"pad_mode": "reflect"}, {}, set()),
    ("Conv", {"auto_pad": "VALID"}, {"pads": [0, 0]}, set()),
    ("Conv", {"inputs": ["W"]}, {}, set()),
    ("AveragePool", {"kernel_shape": [2], "count_include_pad": True}, {"kernel_shape": [2]}, set()),
    ("AveragePool", {"kernel_shape": [2], "count_include_pad": True, "ceil_mode": True},
     {"kernel_shape": [2], "ceil_mode": 1}, {"count_include_pad"}),
    ("Softplus", {"threshold": None}, {"threshold": 20.0}, {"threshold"}),
    ("LSTM", {"activations": ["Sigmoid", "Tanh", "Tanh"] * 2}, {"activations": ["Sigmoid", "Tanh", "Tanh"]}, set()),
    ("LSTM", {"activations": ["Sigmoid", "Tanh", "Tanh"]}, {"activations": ["Sigmoid", "Relu", "Relu"]},
     {"activations"}),
    ("LSTM", {"merge": "sum"}, {}, set()),
    ("LSTM", {"merge": "sum", "direction": "bidirectional"}, {"direction": "bidirectional"}, {"merge"}),
    ("Resize", {"mode": "linear", "nearest_mode": "floor", "scales": [2.0, 2.0]},
     {"mode": "linear", "scales": 2}, set()),
    ("Resize", {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "scales": 2},
     {"mode": "nearest", "scales": [2, 2]}, set()),
    ("Resize", {"mode": "nearest", "nearest_mode": "floor", "scales": 1.5}, {"scales": 1.5}, {"nearest_mode"}),
    ("Attention", {"scale": 0.5, "num_heads": None}, {"scale": 0.5, "num_heads": 4}, set()),
    ("ReduceMean", {"axes": -1}, {"axes": [-1]}, set()),
    ("ReduceMean", {"axes": [2, 1]}, {"axes": [1, 2]}, set()),
    ("Mystery", {"a": 1}, {"a": 1, "b": 2}, {"b"}),
])  # fmt: skip
def test_differing_attributes(op: str, a: dict, b: dict, expected: set[str]) -> None:
    found = ops.differing_attrs(op, a, b)
    assert set(found) == expected
    assert {n: (y, x) for n, (x, y) in found.items()} == ops.differing_attrs(op, b, a)


def test_pads_and_auto_pad_are_equal_only_where_they_come_to_the_same() -> None:
    same = {"auto_pad": "SAME_UPPER", "pads": [0] * 4, "strides": [2, 2], "kernel_shape": [3, 3]}
    ones = {"auto_pad": "NOTSET", "pads": [1] * 4, "strides": [2, 2], "kernel_shape": [3, 3]}
    assert set(ops.differing_attrs("Conv", same, ones)) == {"auto_pad", "pads"}
    assert not ops.differing_attrs("Conv", same, ones, size=[9, 7])
    assert set(ops.differing_attrs("Conv", same, ones, size=[8, 8])) == {"auto_pad", "pads"}
    for x in (same, ones):
        x["strides"] = [1, 1]
    assert not ops.differing_attrs("Conv", same, ones)  # with stride 1 for every size
    even = {**same, "kernel_shape": [4, 4]}
    assert ops.resolved_pads(even, None, [4, 4]) == [1, 1, 2, 2]
    assert ops.resolved_pads({**even, "auto_pad": "SAME_LOWER"}, None, [4, 4]) == [2, 2, 1, 1]


def test_what_matters_only_in_training_or_only_with_a_mask() -> None:
    a, b = {"momentum": 0.9, "epsilon": 1e-5}, {"momentum": 0.99, "epsilon": 1e-5}
    assert set(ops.differing_attrs("BatchNormalization", a, b)) == {"momentum"}
    assert not ops.differing_attrs("BatchNormalization", a, b, training=False)
    a, b = {"zero_output_for_mask": True}, {}
    assert set(ops.differing_attrs("GRU", a, b)) == {"zero_output_for_mask"}
    assert not ops.differing_attrs("GRU", a, b, masked=False)


def test_axes_count_from_either_end_once_the_rank_is_known() -> None:
    assert set(ops.differing_attrs("Softmax", {"axis": 1}, {"axis": -1})) == {"axis"}
    assert not ops.differing_attrs("Softmax", {"axis": 1}, {"axis": -1}, rank=2)
    assert set(ops.differing_attrs("Softmax", {"axis": 1}, {"axis": -1}, rank=3)) == {"axis"}


def test_scales_and_sizes() -> None:
    a, b = {"mode": "linear", "scales": [2.0, 2.0]}, {"mode": "linear", "sizes": [10, 14]}
    assert set(ops.differing_attrs("Resize", a, b)) == {"scales", "sizes"}
    assert not ops.differing_attrs("Resize", a, b, size=[5, 7])
    assert ops.differing_attrs("Resize", a, b, size=[5, 8])


def test_equations_are_spelt_one_way() -> None:
    assert ops.einsum_equation("bij, bjk -> bik") == ops.einsum_equation("xqr,xrs->xqs") == "abc,acd->abd"
