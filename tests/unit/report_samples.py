"""Reports made up for tests of the rendering: clean, a few faults, very many, hostile names, no answer."""

from __future__ import annotations

import math

from ambidex.core.report import Coverage, Finding, LayerRow, Report, WeightPair, Where, WholeModel

ENVIRONMENT = {
    "python": "3.11.9",
    "platform": "Linux x86_64, 2 cores",
    "reference": {"framework": "torch", "torch": "2.13.0"},
    "candidate": {"framework": "keras", "keras": "3.15.1", "tensorflow": "2.21.0"},
}


def _layer(
    reference: str | None, candidate: str | None, op: str, ratio: float | None = 0.8, **more: object
) -> LayerRow:
    floor = None if ratio is None else 1.3e-7
    shadow = None if ratio is None or floor is None else ratio * floor
    values: dict = {"matched_by": "weights", "chained": shadow, "shadow": shadow, "floor": floor, "ratio": ratio}
    return LayerRow(reference=reference, candidate=candidate, op=op, **(values | more))


def _encoder(blocks: int = 2) -> list[LayerRow]:
    rows = [_layer("item_embedding", "item_embedding", "Gather", 0.0, matched_by="name")]
    for i in range(blocks):
        a, b = f"encoder.layers.{i}", f"encoder/transformer_layer_{i}"
        rows += [
            _layer(f"{a}.self_attn", f"{b}/attention", "Attention", 0.9 + 0.1 * i, matched_by="region"),
            _layer(f"{a}.norm1", f"{b}/attention_norm", "LayerNormalization", 0.7),
            _layer(f"{a}.linear1", f"{b}/ffn/expand", "Gemm", 1.1),
            _layer(f"{a}.activation", f"{b}/ffn/gelu", "Gelu", 0.6, matched_by="order"),
            _layer(f"{a}.linear2", f"{b}/ffn/contract", "Gemm", 1.3),
            _layer(f"{a}.norm2", f"{b}/ffn_norm", "LayerNormalization", 0.8),
        ]
    rows += [
        _layer("graph.gat.lin", "graph/attention/project", "Gemm", 0.9),
        _layer("graph.gat.leaky", "graph/attention/leaky", "LeakyRelu", 0.4, matched_by="order"),
        _layer("graph.gat.softmax", "graph/attention/softmax", "Softmax", 0.9, matched_by="order"),
        _layer("head.0", "head/dense", "Gemm", 1.0),
        _layer("head.1", "head/relu", "Relu", 0.0, matched_by="order"),
        _layer("head.2", "head/logit", "Gemm", 1.2),
    ]
    return rows


def _weights(rows: list[LayerRow]) -> list[WeightPair]:
    pairs = []
    for row in rows:
        if row.op in ("Gemm", "LayerNormalization", "Gather") and row.reference and row.candidate:
            for role, mine, theirs in (("W", "weight", "kernel"), ("B", "bias", "bias")):
                names = {"reference": f"{row.reference}.{mine}", "candidate": f"{row.candidate}/{theirs}"}
                pairs.append(WeightPair(**names, role=role, how="name", carried=True))
    return pairs


def clean() -> Report:
    rows = _encoder()
    return Report(
        verdict="equal",
        reference="recommender_torch.py:build",
        candidate="recommender_keras.py:build",
        whole_model=WholeModel(max_abs=4.1e-7, max_rel=2.3e-7, floor_ratio=0.8),
        coverage=Coverage(matched=len(rows)),
        layers=rows,
        notes=["the candidate keeps the layout NHWC, the reference NCHW"],
        weights=_weights(rows),
        inputs=["items: int64[5, 11], ids 0..1682", "features: float32[5, 7], standard normal"],
        environment=ENVIRONMENT,
        seconds={"open": 1.2, "align": 0.3, "measure": 0.4},
    )


def three() -> Report:
    """Three causes in four places, two proven."""
    rows = _encoder()
    faults = {"attention_norm": 4100.0, "ffn_norm": 2600.0, "graph/attention/leaky": 3.1e5, "head/dense": 52.0}
    travelled = 1.0
    for row in rows:
        assert row.candidate and row.ratio is not None and row.floor
        for name, ratio in faults.items():
            if row.candidate.endswith(name) and "layer_1" not in row.candidate:
                row.ratio, row.shadow, row.status = ratio, ratio * row.floor, "faulty"
        travelled = max(travelled * 0.9, row.ratio)
        row.chained = travelled * row.floor
    rows.append(_layer(None, "head/dropout", "Dropout", None, matched_by="", status="unmatched"))
    block = "encoder/transformer_layer_0/"
    norms = [
        Finding(
            code="AMB101",
            title="normalisation epsilon differs: 1e-5 in the reference, 1e-3 here",
            stage="forward",
            where=Where(
                reference=f"encoder.layers.0.{mine}",
                candidate=block + theirs,
                file="recommender_keras.py",
                line=41,
            ),
            message="The layer divides by sqrt(variance + epsilon). Keras takes 1e-3 when nothing is said, torch 1e-5; "
            "rows of low variance come out too small.",
            fix="keras.layers.LayerNormalization(epsilon=1e-5)",
            before=before,
            after=1.2e-7,
            proven=True,
            proof="The candidate's layer was run again with epsilon=1e-5 on the reference's inputs.",
            floor=1.3e-7,
            tried=["axis", "scale and bias exchanged"],
        )
        for mine, theirs, before in (("norm1", "attention_norm", 5.3e-4), ("norm2", "ffn_norm", 3.4e-4))
    ]
    slope = Finding(
        code="AMB114",
        title="LeakyRelu slope differs: 0.2 in the reference, 0.3 here",
        stage="forward",
        where=Where(
            reference="graph.gat.leaky", candidate="graph/attention/leaky", file="recommender_keras.py", line=77
        ),
        message="Negative attention logits are multiplied by the slope. Keras takes 0.3, graph attention 0.2.",
        fix="keras.layers.LeakyReLU(negative_slope=0.2)",
        before=0.04,
        after=0.0,
        proven=True,
        proof="The candidate's layer was run again with alpha=0.2.",
        floor=1.3e-7,
    )
    unknown = Finding(
        code="AMB100",
        title="the layer differs and no known cause explains it",
        stage="forward",
        where=Where(reference="head.0", candidate="head/dense", file="recommender_keras.py", line=103),
        message="Fed the same inputs, the two layers differ 52 times more than rounding. The one-layer case was saved "
        "in ambidex-cases/head_dense.",
        before=6.8e-6,
        proven=False,
        floor=1.3e-7,
        tried=["bias left out", "kernel transposed", "weights rounded to bfloat16"],
    )
    return Report(
        verdict="different",
        reference="recommender_torch.py:build",
        candidate="recommender_keras.py:build",
        whole_model=WholeModel(max_abs=0.31, max_rel=0.089, floor_ratio=1.1e5, after_fixes=7.2e-6, worst_output="0"),
        coverage=Coverage(matched=len(rows) - 1, only_in_candidate=["head/dropout"]),
        layers=rows,
        findings=[slope, *norms, unknown],
        notes=["the candidate has a Dropout that the reference lacks; in eval mode it does nothing"],
        weights=[
            *_weights(rows),
            WeightPair(reference="head.scale", candidate=None, how="no parameter of shape (1,) is left"),
        ],
        inputs=["items: int64[5, 11], ids 0..1682", "features: float32[5, 7], standard normal"],
        environment=ENVIRONMENT,
        seconds={"open": 1.2, "align": 0.3, "measure": 0.4, "prove": 0.9},
    )


def many(blocks: int = 100, findings: int = 100, causes: int = 5) -> Report:
    """About 600 layers, 100 findings over 30 blocks and more."""
    report = three()
    rows = _encoder(blocks)
    bad = [row for row in rows if row.op in ("LayerNormalization", "Gelu")][:findings]
    found = []
    for i, row in enumerate(bad):
        assert row.floor is not None
        row.ratio = 10 ** (1.5 + (i * 7 % 40) / 10)
        row.shadow, row.status = row.ratio * row.floor, "faulty"
        where = Where(reference=row.reference, candidate=row.candidate, file="big_keras.py", line=20 + i % 11)
        cause = i % causes
        found.append(
            Finding(
                code=f"AMB1{cause:02d}",
                title=f"cause number {cause}: an attribute of the layer differs",
                stage="forward",
                where=where,
                message="A long explanation of what the layer does with it and why the output is different from that "
                "of the reference.",
                fix=f"layer(attribute_{cause}=1e-5)  # in the constructor",
                before=row.shadow,
                after=1e-7 * (i % 3),
                proven=i % 4 != 0,
                floor=row.floor,
                tried=["one thing", "another thing"],
            )
        )
    grown = 1.0
    for row in rows:
        grown = max(grown * 0.97, row.ratio or 0.0)
        row.chained = grown * (row.floor or 1e-7)
    lonely = [f"encoder.layers.{i}.drop{n}" for i in range(blocks) for n in (1, 2)][:40]
    rows += [_layer(name, None, "Dropout", None, matched_by="", status="unmatched") for name in lonely]
    return report.model_copy(
        update={
            "layers": rows,
            "findings": found,
            "coverage": Coverage(matched=len(rows) - len(lonely), only_in_reference=lonely),
            "weights": _weights(rows),
            "notes": [
                f"note number {i} that is long enough to fill a whole line of a terminal, and more" for i in range(9)
            ],
        }
    )


HOSTILE = '"><script>document.body.dataset.hacked=1</script><img src=x onerror="document.body.dataset.hacked=1">'


def hostile() -> Report:
    """Names that try to break out of HTML, of a script block, of rich markup and of the terminal."""
    report = three()
    names = [
        HOSTILE,
        "</script><script>document.body.dataset.hacked=2</script>",
        "{{ 7*7 }}{% raw %}",
        "[bold red]x[/]",
    ]
    names += [
        "\x1b[2J\x1b]0;owned\x07",
        "a\nb\u202egnp.exe",
        "javascript:alert(1)",
        "' onmouseover='alert(1)",
        "x" * 500,
    ]
    names += ["a/../b", "..", "/", ""]
    for row, name in zip(report.layers, names, strict=False):
        row.reference, row.candidate, row.op = name, name + "/" + name, name[:40]
    for finding, name in zip(report.findings, names, strict=False):
        finding.where = Where(reference=name, candidate=name, file=name + ".py", line=1)
        finding.title, finding.message, finding.fix, finding.proof = name, name, name, name
        finding.tried = [name]
    report.weights = [WeightPair(reference=name, candidate=name, role=name[:9], how=name[:50]) for name in names]
    report.notes, report.inputs = list(names), list(names)
    report.environment = {name: {name: name} for name in names}
    report.coverage.only_in_reference = list(names)
    report.reference = report.candidate = HOSTILE
    return report


def undecided() -> Report:
    rows = _encoder()
    rows[1].status, rows[1].shadow, rows[1].ratio = "could_not_run", None, None
    rows[4].ratio, rows[4].shadow, rows[4].chained = math.inf, math.nan, math.inf
    return Report(
        verdict="undecided",
        reference="recommender_torch.py:build",
        candidate="recommender_keras.py:build",
        whole_model=WholeModel(max_abs=3e-5, max_rel=1.2e-5, floor_ratio=4.0),
        coverage=Coverage(matched=len(rows), only_in_reference=["pool"], only_in_candidate=["pooling", "lambda_1"]),
        layers=rows,
        inputs=["items: int64[5, 11]"],
        environment=ENVIRONMENT,
    )


def not_reproducible() -> Report:
    return Report(
        verdict="not_reproducible",
        reference="recommender_torch.py:build",
        candidate="recommender_keras.py:build",
        whole_model=WholeModel(max_abs=math.nan, max_rel=None, floor_ratio=math.inf),
        coverage=Coverage(matched=0),
        notes=["two runs of the reference differ by 0.31, first in 'encoder.layers.0.dropout'"],
    )


def unicode_() -> Report:
    """Wide, combining and right-to-left letters in names."""
    report = three()
    for row in report.layers:
        if row.candidate:
            row.candidate = row.candidate.replace("encoder", "编码器").replace("head", "tête").replace("graph", "رسم")
    for finding in report.findings:
        where = finding.where
        where.candidate = (where.candidate or "").replace("encoder", "编码器").replace("head", "tête")
        where.file = "modèles/推荐.py"
        finding.message = "说明：归一化的 epsilon 不同。" * 6
    report.reference, report.candidate = "推荐.py:build", "推荐_keras.py:build"
    return report


ALL = {make.__name__.rstrip("_"): make for make in (clean, three, many, hostile, undecided, not_reproducible, unicode_)}
