"""CRAFT, 20.8 million weights: easyocr's torch code and keras-ocr's Keras code, both with the weights easyocr ships."""

import importlib
import sys
import types

import numpy as np
from shelf import SITE

TRAINED = SITE / "easyocr_en_models" / "models" / "craft_mlt_25k.pth"
#: torchvision's VGG-16 with batch norm up to its last pooling: widths, 0 is a pooling
VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)


def _vgg16_bn(*_, **__):
    """Stands in for torchvision, of which no release fits the installed torch."""
    from torch import nn

    modules, width = [], 3
    for wanted in VGG16:
        if not wanted:
            modules.append(nn.MaxPool2d(2))
            continue
        modules.extend((nn.Conv2d(width, wanted, 3, padding=1), nn.BatchNorm2d(wanted), nn.ReLU(inplace=True)))
        width = wanted
    return types.SimpleNamespace(features=nn.Sequential(*modules))


def reference():
    import torch

    vision = types.ModuleType("torchvision")
    vision.__version__ = "0.12"
    vision.models = types.ModuleType("torchvision.models")
    vision.models.vgg = types.ModuleType("torchvision.models.vgg")
    vision.models.vgg.model_urls = {"vgg16_bn": "https://nowhere.invalid"}
    vision.models.vgg16_bn = vision.models.vgg.vgg16_bn = _vgg16_bn
    vision.models.VGG16_BN_Weights = types.SimpleNamespace(DEFAULT=None)
    stand_ins = {
        "torchvision": vision,
        "torchvision.models": vision.models,
        "torchvision.models.vgg": vision.models.vgg,
    }
    for package in ("easyocr", "easyocr.model"):  # their own __init__ wants image libraries
        stand_ins[package] = types.ModuleType(package)
        stand_ins[package].__path__ = [str(SITE.joinpath(*package.split(".")))]
    sys.modules.update(stand_ins)
    try:
        network = importlib.import_module("easyocr.craft").CRAFT(pretrained=False)
    finally:
        for name in stand_ins:
            sys.modules.pop(name)
    state = torch.load(TRAINED, map_location="cpu", weights_only=True)
    network.load_state_dict({name.removeprefix("module."): value for name, value in state.items()})
    return network.eval()


def candidate():
    """keras-ocr's module without its imports of image libraries, which building the network does not touch."""
    text = (SITE / "keras_ocr" / "detection.py").read_text(encoding="utf-8")
    for line in ("import cv2", "import efficientnet.tfkeras as efficientnet", "from . import tools"):
        assert line in text, line
        text = text.replace(line, "", 1)
    module = types.ModuleType("keras_ocr_detection")
    exec(compile(text, "detection.py", "exec"), module.__dict__)
    network = module.build_keras_model(weights_path=None, backbone_name="vgg")
    module.load_torch_weights(network, weights_path=str(TRAINED))
    return network


def picture():
    """Odd sizes: what pooling and resizing leave over shows."""
    picture = np.random.default_rng(11).normal(size=(1, 83, 131, 3)).astype("float32")
    return {"reference": (np.ascontiguousarray(np.moveaxis(picture, -1, 1)),), "candidate": (picture,)}
