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

INNER = r"intermediate|feedforward|ffn|mlp|act"


def _gelu(times: int) -> Fault:
    return Fault("the candidate has the tanh approximation of GELU, the checkpoint says erf", ("AMB110",), INNER, times)


def _relu(times: int) -> Fault:
    return Fault("the activation of the configuration is ignored", ("AMB115",), INNER, times)


def _epsilon(times: int) -> Fault:
    return Fault("the normalisation epsilon of the configuration is ignored", ("AMB101",), r"(?i)norm|ln_", times)


def _port(id: str, inputs: str, *faults: Fault) -> Case:
    return Case(id, "ports.py", id, f"{id}_ported", inputs, faults=faults)


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
    _port("minilm", "sentences", _gelu(6)),
    _port("bert_tanh", "text_with_segments"),
    _port("bert_erf", "text_with_segments", _gelu(2)),
    _port("bert_wide_epsilon", "text_with_segments", _epsilon(5)),
    _port("bert_relu_wide_epsilon", "text_with_segments", _relu(2), _epsilon(5)),
    _port("distilbert", "text"),
    _port("distilbert_relu", "text", _relu(2)),
    _port("gpt2", "text"),
    _port("gpt2_erf_wide_epsilon", "text", _gelu(2), _epsilon(5)),
    _port("llama", "text"),
    _port("llama_wide_epsilon", "text", _epsilon(5)),
    Case("llama_other_way", "ports.py", "llama_ported", "llama", "text_from_keras"),
    _port("qwen2", "text"),
    _port("vit", "pictures"),
    _port("vit_relu_wide_epsilon", "pictures", _relu(2), _epsilon(5)),
    # two hand-written networks of 20.8 million weights
    Case("craft", "text_detector.py", "reference", "candidate", "picture"),
    # Keras 2 on one side
    _legacy("deepfm", "recommenders.py", "deepfm_tensorflow", "deepfm_torch", "clicks"),
    _legacy("dcn", "recommenders.py", "dcn_tensorflow", "dcn_torch", "clicks"),
    _legacy("din_relu", "recommenders.py", "din_relu_tensorflow", "din_relu_torch", "histories"),
    _legacy("din_dice", "recommenders.py", "din_dice_tensorflow", "din_dice_torch", "histories"),
    _legacy("gat", "graph_attention.py", "spektral", "geometric", "graph"),
)
