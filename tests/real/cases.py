"""The pairs and what is true of each. No framework here: the runner reads this, every pair runs in its own process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAIRS = Path(__file__).with_name("pairs")


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong. A finding tells it when its code is one of ``codes`` and its place matches ``where``.

    ``where``: a regular expression searched in the reference's and the candidate's path. ``times``: in how many places
    it sits, each of which must be told. ``optional``: true, but without an effect: telling it is no mistake.
    """

    cause: str
    codes: tuple[str, ...]
    where: str
    times: int = 1
    optional: bool = False


@dataclass(frozen=True)
class Case:
    """One comparison: factories and input function of one file in ``pairs/``.

    ``refused``: one side is something this version does not compare; the command must say so (exit code 2) with these
    words. ``legacy``: TensorFlow is to load Keras 2. ``after``: with all fixes the outputs are nearer than this.
    """

    id: str
    file: str
    reference: str
    candidate: str
    inputs: str
    weights: str = "keep"
    faults: tuple[Fault, ...] = ()
    refused: tuple[str, ...] = ()
    legacy: bool = False
    after: float = 1e-4
    seconds: float = 300.0

    def spec(self, name: str) -> str:
        return f"{PAIRS / self.file}:{name}"


LEGACY = ("Keras 2", "Keras 3")

GELU = "the candidate has the tanh approximation of GELU, the checkpoint says erf"


def _legacy(id: str, file: str, candidate: str, reference: str, inputs: str) -> Case:
    return Case(id, file, reference, candidate, inputs, weights="carry", refused=LEGACY, legacy=True)


CASES = (
    # trained recurrent weights, loaded by hand
    Case("g2p", "g2p.py", "reference", "loaded_right", "words"),
    Case("g2p_carried", "g2p.py", "reference", "fresh", "words", weights="carry"),
    Case(
        "g2p_gate_order",
        "g2p.py",
        "reference",
        "torch_gate_order",
        "words",
        faults=(Fault("the gates stand in torch's order in the Keras layer", ("AMB204",), "gru"),),
    ),
    Case(
        "g2p_reset_before",
        "g2p.py",
        "reference",
        "reset_before",
        "words",
        faults=(Fault("reset_after=False", ("AMB150",), "gru"),),
    ),
    Case("g2p_other_way", "g2p.py", "loaded_right", "reference", "words", weights="carry"),
    # a shipped Keras model with masked steps, and its torch twin
    Case("sleep_packed", "sleep_stages.py", "shipped", "packed", "nights", weights="carry"),
    Case("sleep_packed_other_way", "sleep_stages.py", "packed", "shipped", "nights_from_torch", weights="carry"),
    Case(
        "sleep_not_packed",
        "sleep_stages.py",
        "shipped",
        "not_packed",
        "nights",
        weights="carry",
        faults=(Fault("the candidate runs its GRUs over the padding", ("AMB406",), "gru|bidirectional", times=2),),
    ),
    # one checkpoint in transformers and through keras_hub's converter
    Case(
        "minilm",
        "ports.py",
        "minilm",
        "minilm_ported",
        "sentences",
        faults=(Fault(GELU, ("AMB110",), r"intermediate|feedforward", times=6),),
    ),
    Case("bert_tanh", "ports.py", "bert_tanh", "bert_tanh_ported", "text_with_segments"),
    Case(
        "bert_erf",
        "ports.py",
        "bert_erf",
        "bert_erf_ported",
        "text_with_segments",
        faults=(Fault(GELU, ("AMB110",), r"intermediate|feedforward", times=2),),
    ),
    Case(
        "bert_wide_epsilon",
        "ports.py",
        "bert_wide_epsilon",
        "bert_wide_epsilon_ported",
        "text_with_segments",
        faults=(Fault("layer_norm_eps of the configuration is ignored", ("AMB101",), r"(?i)norm", times=5),),
    ),
    Case(
        "bert_relu_wide_epsilon",
        "ports.py",
        "bert_relu_wide_epsilon",
        "bert_relu_wide_epsilon_ported",
        "text_with_segments",
        faults=(
            Fault("hidden_act of the configuration is ignored", ("AMB115",), r"intermediate|feedforward", times=2),
            Fault("layer_norm_eps of the configuration is ignored", ("AMB101",), r"(?i)norm", times=5),
        ),
    ),
    Case("distilbert", "ports.py", "distilbert", "distilbert_ported", "text"),
    Case("gpt2", "ports.py", "gpt2", "gpt2_ported", "text"),
    Case("llama", "ports.py", "llama", "llama_ported", "text"),
    Case("llama_other_way", "ports.py", "llama_ported", "llama", "text_from_keras"),
    Case("qwen2", "ports.py", "qwen2", "qwen2_ported", "text"),
    Case("vit", "ports.py", "vit", "vit_ported", "pictures"),
    # two hand-written networks of 20.8 million weights
    Case("craft", "text_detector.py", "reference", "candidate", "picture"),
    # Keras 2 on one side
    _legacy("deepfm", "recommenders.py", "deepfm_tensorflow", "deepfm_torch", "clicks"),
    _legacy("dcn", "recommenders.py", "dcn_tensorflow", "dcn_torch", "clicks"),
    _legacy("din_relu", "recommenders.py", "din_relu_tensorflow", "din_relu_torch", "histories"),
    _legacy("din_dice", "recommenders.py", "din_dice_tensorflow", "din_dice_torch", "histories"),
    _legacy("gat", "graph_attention.py", "spektral", "geometric", "graph"),
)
