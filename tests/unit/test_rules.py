"""Rules without any framework: registration, who claims what, the words, the pages."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ambidex import rules
from ambidex.core import ops
from ambidex.core.rule import Cause, Example, Rule, Side
from ambidex.core.types import Call, Layer
from ambidex.errors import RuleError
from ambidex.rules import pages, registry
from ambidex.rules.words import Known, code, number

EXPLAIN = Path(__file__).parents[2] / "docs" / "explain"
KINDS = ("attr", "op", "missing", "extra", "variant", "weight", "parameter", "order", "scale", "mask", "wiring",
         "constant", "random", "output", "unknown")  # fmt: skip


def cause(
    kind: Any,
    op: str,
    name: str = "",
    reference: Any = None,
    candidate: Any = None,
    to: str = "keras",
    cls: str = "",
    **detail: Any,
) -> Cause:
    other = "torch" if to == "keras" else "keras"
    return Cause(
        kind, op, name, reference, candidate, framework=to, reference_framework=other, candidate_cls=cls, detail=detail
    )


def words(c: Cause) -> tuple[str, str, str, str]:
    rule = rules.best(c)
    return rule.code, rule.title_for(c), rule.message(c), rule.fix(c)


# ---------------------------------------------------------------- every rule


@pytest.mark.parametrize("rule", rules.all_rules(), ids=lambda r: r.code)
def test_sample_is_won_and_worded(rule: Any) -> None:
    """Each rule wins its own sample, and has title, message and fix for a candidate in either framework or neither."""
    for framework in ("torch", "keras", "onnx"):
        c = replace(rule.sample, framework=framework, reference_framework="torch")
        assert rules.best(c) is rule
        for text in (rule.title_for(c), rule.message(c), rule.fix(c)):
            assert text and text == text.strip() and not re.search(r"\{[A-Za-z_]", text), text
        assert len(rule.title_for(c)) <= 90
        assert rule.message(c).endswith(".") and rule.message(c)[0].isupper() or "/" in rule.message(c)


def test_codes_and_names_are_unique() -> None:
    every = rules.all_rules()
    assert len(every) >= 45
    assert len({r.code for r in every}) == len({r.name for r in every}) == len(every)


@pytest.mark.parametrize("kind", KINDS)
def test_every_cause_has_a_rule(kind: str) -> None:
    """Any operator, any name, empty values: some rule claims it and can word it."""
    names = [
        "",
        "epsilon",
        "axis",
        "alpha",
        "pads",
        "strides",
        "mode",
        "scale",
        "B",
        "missing",
        "lost",
        "flatten",
        "state",
        "odd",
    ]
    for op in [*ops.names(), "", "NoSuchOperator"]:
        for name in names:
            c = cause(kind, op, name)
            assert all(words(c)), (kind, op, name)


@pytest.mark.parametrize("kind", ["attr", "op", "variant"])
def test_every_attribute_can_be_worded(kind: str) -> None:
    for op in ops.names():
        for name, default in ops.spec(op).attrs.items():
            for values in (
                (default, None),
                (None, default),
                (1, 2),
                (0.5, 0.25),
                ([1, 1], [2, 2]),
                ("a", "b"),
                (True, False),
            ):
                for framework in ("torch", "keras"):
                    assert all(words(cause(kind, op, name, *values, to=framework))), (op, name, values)


# ---------------------------------------------------------------- words


def test_epsilon_of_a_keras_default() -> None:
    c = cause("attr", "LayerNormalization", "epsilon", 1e-12, 1e-3, cls="LayerNormalization")
    got = words(c)
    assert got[0] == "AMB101"
    assert got[1] == "LayerNorm epsilon is 0.001, the reference has 1e-12"
    assert "default of keras.layers.LayerNormalization" in got[2] and "configuration value ignored" in got[2]
    assert got[3] == "keras.layers.LayerNormalization(epsilon=1e-12)"


def test_epsilon_of_two_defaults() -> None:
    got = words(cause("attr", "BatchNormalization", "epsilon", 1e-3, 1e-5, to="torch", cls="BatchNorm2d"))
    assert got[3] == "nn.BatchNorm2d(..., eps=0.001)"
    assert "defaults of nn.BatchNorm1d/2d/3d and keras.layers.BatchNormalization" in got[2]


def test_epsilon_that_is_no_default_is_not_called_one() -> None:
    assert "default" not in words(cause("attr", "LayerNormalization", "epsilon", 1e-5, 1e-6))[2]


def test_gelu() -> None:
    keras = words(cause("attr", "Gelu", "approximate", "none", "tanh", cls="Dense"))
    assert keras[0] == "AMB110"
    assert "candidate uses the tanh approximation of GELU, the reference the exact (erf) GELU" in keras[2]
    assert keras[3] == "activation=lambda x: keras.activations.gelu(x, approximate=False)"
    torch = words(cause("attr", "Gelu", "approximate", "tanh", "none", to="torch", cls="GELU"))
    assert torch[3] == "nn.GELU(approximate='tanh')"
    assert (
        words(cause("attr", "Gelu", "approximate", "tanh", "none", to="torch", cls="gelu"))[3]
        == "F.gelu(x, approximate='tanh')"
    )


def test_a_float32_slope_reads_as_meant() -> None:
    got = words(cause("attr", "LeakyRelu", "alpha", 0.20000000298023224, 0.30000001192092896, cls="LeakyReLU"))
    assert got[1] == "LeakyReLU slope is 0.3, the reference has 0.2"
    assert got[3] == "keras.layers.LeakyReLU(negative_slope=0.2)"
    assert "default of keras.layers.LeakyReLU" in got[2]


def test_same_padding_in_torch_is_the_formula() -> None:
    c = cause("attr", "Conv", "pads", "SAME_UPPER", [1, 1, 1, 1], to="torch", cls="Conv2d",
              reference_attrs={"strides": [2, 2], "dilations": [1, 1], "kernel_shape": [3, 3]})  # fmt: skip
    got = words(c)
    assert got[0] == "AMB120" and "F.pad" in got[3] and "nn.Conv2d(..., padding=0)" in got[3]
    namespace: dict[str, Any] = {"x": Shaped(8, 9), "F": Shaped(0, 0)}
    exec(got[3].split("; x = ")[0], namespace)  # noqa: S102 (the fix is code: it must run)
    assert namespace["pads"] == [1, 1, 0, 1]  # last axis first: 9 is odd, 8 is even


class Shaped:
    def __init__(self, *space: int) -> None:
        self.shape = (2, 3, *space)


def test_symmetric_padding_in_keras_is_a_layer() -> None:
    got = words(cause("attr", "Conv", "pads", [1, 1, 1, 1], "SAME_UPPER", cls="Conv2D"))
    assert got[3] == "keras.layers.ZeroPadding2D(1) and then keras.layers.Conv2D(..., padding='valid')"
    uneven = words(cause("attr", "Conv", "pads", [0, 2, 1, 3], "SAME_UPPER", cls="Conv2D"))
    assert "ZeroPadding2D(((0, 1), (2, 3)))" in uneven[3]


def test_max_pool_is_padded_with_minus_infinity() -> None:
    got = words(cause("attr", "MaxPool", "pads", [1, 1, 1, 1], "SAME_UPPER", cls="MaxPooling2D"))
    assert got[0] == "AMB130" and "-float('inf')" in got[3] and "not ZeroPadding2D" in got[3]
    assert (
        "value=float('-inf')"
        in words(cause("attr", "MaxPool", "pads", "SAME_UPPER", [1, 1], to="torch", cls="MaxPool1d"))[3]
    )


def test_transposed_crop() -> None:
    torch = words(cause("attr", "ConvTranspose", "pads", [0, 0, 1, 1], [1, 1, 1, 1], to="torch", cls="ConvTranspose2d"))
    assert torch[0] == "AMB126" and "y[..., 0:-1, 0:-1]" in torch[3]
    keras = words(cause("attr", "ConvTranspose", "pads", [1, 1, 0, 0], [0, 0, 1, 1], cls="Conv2DTranspose"))
    assert "keras.layers.Cropping2D(((1, 0), (1, 0)))" in keras[3]


@pytest.mark.parametrize(
    ("c", "expected", "said"),
    [
        (cause("op", "Relu", "Clip", {}, {"min": 0.0, "max": 6.0}), "AMB115", "ReLU6"),
        (cause("op", "MaxPool", "AveragePool"), "AMB133", "average pooling"),
        (cause("op", "LayerNormalization", "RMSNormalization"), "AMB104", "RMSNorm"),
        (cause("op", "ReduceMean", "ReduceSum"), "AMB147", "sum"),
        (cause("op", "LSTM", "GRU"), "AMB159", "GRU"),
        (cause("missing", "Add", "residual"), "AMB190", "skip"),
        (cause("missing", "Relu"), "AMB116", "ReLU"),
        (cause("extra", "Softmax"), "AMB117", "softmax"),
        (cause("missing", "Mul", "scale"), "AMB192", "scale"),
        (cause("missing", "Gemm"), "AMB193", "linear layer"),
        (cause("missing", "LayerNormalization"), "AMB107", "LayerNorm"),
        (cause("missing", "Dropout"), "AMB303", "dropout"),
        (cause("variant", "BatchNormalization", "training_mode", None, True), "AMB106", "statistics"),
        (cause("variant", "Softmax", "axis", None, -2), "AMB118", "-2"),
        (cause("variant", "LayerNormalization", "std_epsilon", None, "std (n - 1) + epsilon"), "AMB105", "n - 1"),
        (cause("variant", "ReduceStd", "correction", None, 1), "AMB148", "n - 1"),
        (cause("attr", "Attention", "scale", 0.25, 1.0), "AMB160", "scale"),
        (cause("attr", "Attention", "is_causal", True, False), "AMB161", "causal"),
        (cause("mask", "Attention", "causal_missing"), "AMB161", "causal"),
        (cause("mask", "Attention", "missing"), "AMB401", "padding"),
        (cause("mask", "Softmax", "inverted"), "AMB402", "polarity"),
        (cause("mask", "GRU", "missing"), "AMB406", "length"),
        (cause("mask", "GRU", "lost"), "AMB404", "lost"),
        (cause("mask", "ReduceMean", "missing"), "AMB407", "mean"),
        (cause("mask", "ReduceMean", "extra"), "AMB403", "extra"),
        (cause("order", "Flatten", "flatten"), "AMB140", "channels last"),
        (cause("order", "Attention", "heads"), "AMB163", "heads"),
        (cause("order", "Concat", "concat", None, (1, 0)), "AMB141", "order"),
        (cause("order", "Reshape", "values"), "AMB149", "order"),
        (cause("scale", "Softmax", "factor", 1.0, 4.0, guess="sqrt(16)", consumer="Softmax"), "AMB160", "sqrt(16)"),
        (cause("scale", "Add", "factor", 1.0, 0.25, guess="1/sqrt(16)", producer="Gather"), "AMB172", "embedding"),
        (cause("scale", "Add", "factor", 1.0, 2.0), "AMB192", "2 times"),
        (cause("wiring", "Gather", "index", 0, 1, shift=1), "AMB173", "shifted by 1"),
        (cause("wiring", "Gemm", "state"), "AMB154", "final state"),
        (cause("wiring", "Add", "input", "block.0", "block/1"), "AMB191", "block/1"),
        (cause("weight", "Gather", "rows", text="only row 0 differs"), "AMB170", "row 0"),
        (cause("weight", "Gemm", "rows", text="only row 4 differs"), "AMB208", "row 4"),
        (cause("weight", "GRU", "gate_order", [], ["gru/kernel"]), "AMB204", "r, z, n, Keras z, r, h"),
        (cause("weight", "Gemm", "transposed", [], ["fc/kernel"]), "AMB201", "fc/kernel"),
        (cause("weight", "Gemm", "values", [], ["fc/kernel"]), "AMB211", "stale"),
        (cause("weight", "Gemm", "bfloat16", [], ["fc/kernel"]), "AMB601", "bfloat16"),
        (cause("weight", "Gemm", "float16", [], ["fc/kernel"]), "AMB602", "float16"),
        (cause("weight", "Gemm", "something new", [], ["fc/kernel"]), "AMB211", "fc/kernel"),
        (cause("parameter", "Gemm", "B", "fc.bias", None), "AMB212", "fc.bias"),
        (cause("parameter", "Gemm", "B", None, "fc/bias", effect=False), "AMB213", "no effect"),
        (cause("attr", "BatchNormalization", "momentum", 0.9, 0.99), "AMB301", "momentum"),
        (cause("attr", "BatchNormalization", "unbiased", True, False), "AMB302", "n - 1"),
        (cause("attr", "Dropout", "ratio", 0.1, 0.5), "AMB303", "0.5"),
        (cause("attr", "Gather", "padding_idx", 0, None), "AMB304", "gradient"),
        (cause("random", "Dropout"), "AMB310", "active"),
        (cause("random", ""), "AMB311", "Two runs"),
        (cause("output", "", "", "0, 1", "1, 0"), "AMB196", "order"),
        (cause("constant", "Gather", "pos"), "AMB197", "built"),
        (cause("unknown", "Gemm"), "AMB100", "another result"),
    ],
    ids=lambda v: f"{v.kind}-{v.op}-{v.name}" if isinstance(v, Cause) else None,
)  # fmt: skip
def test_who_claims_what(c: Cause, expected: str, said: str) -> None:
    got = words(c)
    assert got[0] == expected
    assert said in got[2]


def test_factor_that_repairs() -> None:
    fix = words(cause("scale", "Add", "factor", 1.0, 0.25, guess="1/sqrt(16)", producer="Gather"))[3]
    assert fix.startswith("multiply the embedding by 4 (that is sqrt(16))")


def test_gate_order_fix_names_both_orders() -> None:
    c = cause("weight", "GRU", "gate_order", [], ["gru/kernel"])
    assert "np.concatenate([z, r, n])" in words(c)[3]
    assert "torch.cat([r, z, h])" in words(replace(c, framework="torch"))[3]


def test_rnn_mask_fix() -> None:
    assert "Masking" in words(cause("mask", "LSTM", "missing"))[3]
    assert "pack_padded_sequence" in words(cause("mask", "LSTM", "missing", to="torch"))[3]


def test_numbers() -> None:
    assert [number(v) for v in (1e-5, 0.001, 0.30000001192092896, True, None, [2, 2], 3)] == [
        "1e-05", "0.001", "0.3", "True", "None", "(2, 2)", "3"]  # fmt: skip
    assert [code(v) for v in (0.20000000298023224, [2, 2], [1, 2], 1 / 6, 1e-12, "erf")] == [
        "0.2", "2", "(1, 2)", "0.16666666666666666", "1e-12", "'erf'"]  # fmt: skip


def test_find() -> None:
    assert rules.find("amb101").code == rules.find("101").code == "AMB101"
    with pytest.raises(RuleError, match="no rule 'AMB999'"):
        rules.find("AMB999")


def test_hand_written_norm_variants() -> None:
    attrs = {"axis": -1, "epsilon": 1e-6}
    call = Call("n#0", Layer("n", "LayerNormalization", attrs), 0)
    found = [v for v in rules.variants(call) if v.name == "std_epsilon"]
    assert [(v.attrs or {})["epsilon"] for v in found] == [1e-6] * 3
    assert any((v.attrs or {}).get("correction") == 1 and (v.attrs or {}).get("epsilon_outside") for v in found)
    assert not rules.variants(Call("r#0", Layer("r", "Relu"), 0))


# ---------------------------------------------------------------- registration

GOOD = (Example(Side("Relu"), Side("Gelu"), True), Example(Side("Relu"), Side("Relu"), False))


def made(doc: str | None = "One.\n\nTwo.", examples: Sequence[Example] = GOOD, **more: Any) -> type[Rule]:
    values: dict[str, Any] = {
        "code": "AMB998", "name": "x", "title": "X", "claims": lambda self, c: False, "message": lambda self, c: "",
        "fix": lambda self, c: "", "examples": examples, "__doc__": doc, "__module__": __name__, **more,
    }  # fmt: skip
    return type("Made", (Rule,), {k: v for k, v in values.items() if v is not ...})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"doc": None}, "no docstring"),
        ({"doc": "One paragraph."}, "one paragraph"),
        ({"examples": ()}, "needs an example"),
        ({"examples": GOOD[:1]}, "needs an example"),
        ({"code": "AMB101"}, "code AMB101 belongs to NormEpsilon"),
        ({"code": "E1"}, "not of the form"),
        ({"name": ""}, "no name"),
        ({"stage": "later"}, "stage 'later'"),
        ({"message": ...}, "does not define message"),
    ],
)
def test_bad_rules_are_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RuleError, match=complaint):
        registry.rule(made(**given))
    assert all(r.code != "AMB998" for r in rules.all_rules())


def test_refusal_names_file_and_line() -> None:
    class Careless(Known):
        code, name, title = "AMB997", "careless", "Careless"

    with pytest.raises(RuleError, match=r"test_rules\.py:\d+: rule Careless is badly written"):
        registry.rule(Careless)


# ---------------------------------------------------------------- pages


def test_pages_are_current() -> None:
    """``python -m ambidex.rules`` was run after the last change of a rule."""
    wanted = pages.pages()
    there = {p.name: p.read_text() for p in EXPLAIN.glob("*.md")}
    assert there.keys() == wanted.keys()
    assert [name for name in wanted if there[name] != wanted[name]] == []


def test_page_has_its_parts() -> None:
    text = rules.page(rules.find("AMB110"))
    parts = (
        "# AMB110: GELU",
        "## How it shows",
        "## Why it happens",
        "nn.GELU(approximate='none')",
        "keras.activations.gelu(x, approximate=False)",
        "## How it is proven",
        "| yes |",
        "| no |",
    )
    for part in parts:
        assert part in text


def test_pages_are_written(tmp_path: Path) -> None:
    (tmp_path / "AMB999.md").write_text("gone")
    subprocess.run([sys.executable, "-m", "ambidex.rules", str(tmp_path)], check=True)
    assert {p.name for p in tmp_path.iterdir()} == set(pages.pages())


def test_rules_load_no_framework() -> None:
    text = "import ambidex.rules, sys; print([m for m in ('torch', 'tensorflow', 'keras', 'onnx') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout.strip() == "[]"
    )
