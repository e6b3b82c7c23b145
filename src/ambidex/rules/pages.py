"""A rule's page in Markdown, and all pages as ``docs/explain`` has them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ambidex.core.rule import Cause, Example, Rule, Side
from ambidex.rules.registry import all_rules
from ambidex.rules.words import number

_FAMILIES = {
    "1": "Layers and structure",
    "2": "Weights and layout",
    "3": "Training and modes",
    "4": "Data and masks",
    "6": "Precision",
}

#: how the engine proves a cause of each kind
_PROOF = {
    "attr": "The candidate's layer is run again, fed the reference's input, with this one attribute set to "
    "the reference's "
    "value. Where the candidate is code by hand that has no attribute, the reference's operator is computed with the "
    "candidate's value instead, and must give the candidate's output.",
    "op": "The candidate's layer is replaced by the reference's operator on the same input, or the reference's by the "
    "candidate's; the two must then agree.",
    "variant": "The reference's operator is computed in the other way on the reference's input and must give "
    "the candidate's output.",
    "missing": "The reference is computed again without the operator and must give the candidate's value.",
    "extra": "The candidate is computed again without the operator and must give the reference's value.",
    "weight": "The candidate's layer is run again with the reference's weights in its place and must give "
    "the reference's "
    "output. How the one comes from the other is found by trying: rounding, transposing, reordering, other layers.",
    "parameter": "The candidate's layer is computed again with the parameter added or taken away.",
    "order": "The values are brought into the other order, and what is computed from them must then agree.",
    "scale": "The candidate's value is divided by the factor, and what is computed from it must then agree.",
    "mask": "The layer is run again with the mask changed (taken out, inverted, or the reference's) and must agree.",
    "wiring": "The layer is run again on the value that the reference feeds, and must agree.",
    "constant": "The layer is run again with the weights it has now and must give the reference's value, "
    "which the constant does not.",
    "random": "The candidate is run twice on the same input.",
    "output": "The outputs are compared in every order; one order agrees.",
    "unknown": "Nothing is proven here: the report says what was tried.",
}


#: the same for the stages behind the forward pass
_FORMULA = (
    "The two sides are described in one vocabulary, and the formula of that description, computed in float64, "
    "must give each side's own result. Then the candidate's settings are exchanged for the reference's, one by one: "
    "the smallest change with which the candidate's formula gives the reference's result is the cause."
)
_STAGE_PROOF = {
    "loss": f"Both losses get the reference's outputs. {_FORMULA}",
    "clip": f"Both clippings get the reference's gradients, as they are and a thousand times larger. {_FORMULA}",
    "update": f"Both optimizers get the reference's weights and gradients for three updates. {_FORMULA}",
    "schedule": f"The learning rates of the first 24 updates are compared. {_FORMULA}",
    "metric": f"Both metrics get the reference's outputs. {_FORMULA}",
    "gradient": "Both sides go back from the same gradients of the outputs, in inference and in training mode, with "
    "the same weights; what comes out for each weight is compared and how the one follows from the other is tried.",
    "steps": "Both sides train some steps from the same weights on the same batches. How far rounding alone carries "
    "the steps apart is measured by the reference against itself with weights changed in their last digit.",
}


def page(rule: Rule) -> str:
    """The page of one rule: its docstring, its words and fixes for a sample cause, the proof, its examples."""
    doc = inspect.cleandoc(type(rule).__doc__ or "")
    parts = [f"# {rule.code}: {rule.title}", f"`{rule.name}` · stage: {rule.stage}", *_sections(doc)]
    sample: Cause | None = getattr(rule, "sample", None)
    if sample is not None:
        sides = [_turned(sample, framework) for framework in ("torch", "keras")]
        parts += ["## In a report", f"> **{rule.title_for(sides[1])}.** {rule.message(sides[1])}", "## What to write"]
        for side, name in zip(sides, ("PyTorch", "Keras"), strict=True):
            parts.append(f"The candidate is in {name}:\n\n```\n{rule.fix(side)}\n```")
        parts += ["## How it is proven", _STAGE_PROOF.get(rule.stage, _PROOF[sample.kind])]
    if rule.examples:
        parts += ["## Examples", _table(rule.examples)]
    return "\n\n".join(parts) + "\n"


def _sections(doc: str) -> list[str]:
    """The docstring's paragraphs; "How it shows:" and "Why it happens:" become headings."""
    found = []
    for paragraph in doc.split("\n\n"):
        text = " ".join(line.strip() for line in paragraph.splitlines())
        for start in ("How it shows", "Why it happens"):
            if text.startswith(f"{start}: "):
                rest = text[len(start) + 2 :]
                found.append(f"## {start}")
                text = rest[0].upper() + rest[1:]
        found.append(text)
    return found


def _turned(sample: Cause, framework: str) -> Cause:
    """The sample with its candidate in a framework (class names of the other one are left out)."""
    other = "keras" if framework == "torch" else "torch"
    own = {"torch": sample.candidate_cls[-1:] == "d", "keras": sample.candidate_cls[-1:] == "D"}
    cls = sample.candidate_cls if sample.candidate_cls and own[framework] else ""
    return replace(sample, framework=framework, reference_framework=other, candidate_cls=cls)


def _table(examples: Sequence[Example]) -> str:
    rows = ["| reference | candidate | input | shown |", "|---|---|---|---|"]
    for e in examples:
        shapes = ", ".join("x".join(map(str, s)) for s in e.reference.inputs)
        rows.append(f"| {_side(e.reference)} | {_side(e.candidate)} | {shapes} | {'yes' if e.shows else 'no'} |")
    return "\n".join(rows)


def _side(side: Side) -> str:
    attrs = ", ".join(f"{k}={_value(v)}" for k, v in side.attrs.items() if v is not None)
    return f"{side.op}({attrs})"


def _value(value: Any) -> str:
    return repr(value) if isinstance(value, str) else number(value)


def index() -> str:
    """The list of all rules by family."""
    parts = [
        "# Causes that ambidex knows",
        "`ambidex explain CODE` prints these pages. They are generated from the rules: `python -m ambidex.rules`.",
    ]
    for digit, title in _FAMILIES.items():
        rows = [f"| [{r.code}]({r.code}.md) | {r.title} | {r.stage} |" for r in all_rules() if r.code[3] == digit]
        if rows:
            parts += [f"## {digit}xx: {title}", "\n".join(["| code | cause | stage |", "|---|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """File name to text, for all of ``docs/explain``."""
    return {"index.md": index(), **{f"{r.code}.md": page(r) for r in all_rules()}}
