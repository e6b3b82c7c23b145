"""What compare hands out: the report, contract ``format: 1``. Rendering lives in ``ambidex.report``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT = 1

Verdict = Literal["equal", "different", "undecided", "not_reproducible"]
Status = Literal["same", "faulty", "glue", "unmatched", "skipped", "could_not_run"]
StageStatus = Literal["same", "different", "not_defined", "not_judged", "could_not_run"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class WholeModel(_Part):
    """How far the outputs of the two models are apart (over positions that count)."""

    max_abs: float | None = Field(description="largest |reference - candidate| over all outputs")
    max_rel: float | None = Field(description="max_abs divided by the largest |reference|")
    floor_ratio: float | None = Field(description="max_abs divided by the round-off floor of the whole reference")
    after_fixes: float | None = Field(
        default=None, description="max_abs with every faulty place computed as the reference does"
    )
    worst_output: str | None = None


class Coverage(_Part):
    matched: int
    only_in_reference: list[str] = []
    only_in_candidate: list[str] = []


class LayerRow(_Part):
    """One pair of calls. chained: each side on its own inputs; shadow: candidate fed the reference's inputs."""

    reference: str | None
    candidate: str | None
    op: str
    matched_by: str = Field(description="map | weights | order | value | region")
    chained: float | None = None
    shadow: float | None = None
    floor: float | None = None
    ratio: float | None = Field(default=None, description="shadow / floor")
    status: Status = "same"
    source: str | None = Field(default=None, description="file:line where the candidate's layer is built")


class StageRow(_Part):
    """One stage of a training step. Each is fed the reference's values and so judged on its own."""

    stage: str = Field(
        description="data | weights | forward | loss | gradient | clip | update | schedule | metric | steps"
    )
    status: StageStatus
    before: float | None = Field(default=None, description="largest difference")
    floor: float | None = None
    ratio: float | None = Field(default=None, description="before / floor")
    note: str = ""
    curves: dict[str, list[float]] = Field(
        default_factory=dict, description="reference and candidate step by step: learning rates, losses"
    )


class Where(_Part):
    reference: str | None = None
    candidate: str | None = None
    file: str | None = None
    line: int | None = None


class Finding(_Part):
    code: str = Field(description="rule code, AMB100 when no rule explains the difference")
    title: str
    stage: str = Field(
        description="environment | data | weights | forward | training | loss | gradient | clip | update | "
        "schedule | metric | steps"
    )
    where: Where
    message: str
    fix: str | None = None
    before: float | None = Field(default=None, description="shadow difference of the layer as it is")
    after: float | None = Field(default=None, description="the same with the fix applied")
    proven: bool = False
    proof: str | None = Field(default=None, description="what was run to prove it")
    tried: list[str] = Field(default=[], description="causes that were tried and are not it")
    floor: float | None = None


class WeightPair(_Part):
    reference: str | None
    candidate: str | None
    role: str = ""
    how: str = Field(description="map | value | name | order | shape | trial; why when one side is missing")
    carried: bool = False


class Report(_Part):
    format: Literal[1] = 1
    verdict: Verdict
    reference: str = ""
    candidate: str = ""
    whole_model: WholeModel
    coverage: Coverage
    layers: list[LayerRow] = []
    threshold: float | None = Field(default=None, description="shadow / floor above which a layer is held to be faulty")
    findings: list[Finding] = []
    stages: list[StageRow] = Field(
        default=[], description="the stages of training, where both sides say what they train with"
    )
    first_stage: str | None = Field(default=None, description="the first stage that differs")
    notes: list[str] = Field(default=[], description="things worth knowing that are no faults")
    weights: list[WeightPair] = []
    inputs: list[str] = Field(default=[], description="what the models were fed, one line each")
    environment: dict[str, Any] = {}
    seconds: dict[str, float] = Field(default={}, description="time by step")

    @property
    def exit_code(self) -> int:
        """0 equal, 1 findings, 2 could not decide, 3 not reproducible."""
        return {"equal": 0, "different": 1, "undecided": 2, "not_reproducible": 3}[self.verdict]
