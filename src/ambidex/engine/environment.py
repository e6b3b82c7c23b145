"""The environment two models run in: versions, switches, threads, devices, and combinations known to go wrong.

Everything is read from package metadata and the process; no framework is imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

#: distributions worth knowing; several names may provide one framework
PACKAGES = (
    "torch",
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-intel",
    "tensorflow-macos",
    "tf-nightly",
    "keras",
    "tf-keras",
    "jax",
    "jaxlib",
    "numpy",
    "ml-dtypes",
    "protobuf",
    "h5py",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "safetensors",
    "ambidex",
)

#: environment variables that change numbers, threads or devices
VARIABLES = (
    "KERAS_BACKEND",
    "TF_USE_LEGACY_KERAS",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_DETERMINISTIC_OPS",
    "TF_XLA_FLAGS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "MKL_CBWR",
    "ONEDNN_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY",
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "PYTORCH_ENABLE_MPS_FALLBACK",
    "JAX_ENABLE_X64",
    "JAX_PLATFORMS",
    "XLA_FLAGS",
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A combination that goes wrong. ``fault``: it should be mended before comparing; otherwise it is worth knowing."""

    fault: bool
    message: str
    why: str
    todo: str


@dataclass(slots=True)
class Environment:
    python: str
    platform: str
    cpu_count: int
    packages: dict[str, str] = field(default_factory=dict)
    keras: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON and for :attr:`ambidex.core.report.Report.environment`."""
        return asdict(self)

    @property
    def exit_code(self) -> int:
        """1 when something should be mended, else 0."""
        return int(any(problem.fault for problem in self.problems))


def collect(*, devices: bool = True) -> Environment:
    """What is installed and set here. ``devices``: also ask nvidia-smi, where there is one (0.1 s and more)."""
    here = Environment(
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        cpu_count=_usable_cpus(),
        packages=_versions(),
        keras=_keras_settings(os.environ),
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
        devices=_devices() if devices else [],
    )
    here.problems = find_problems(here)
    return here


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        except Exception as error:  # damaged metadata of a half-removed package
            found[name] = f"unreadable ({type(error).__name__})"
    return {name: version for name, version in found.items() if version}


def _keras_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """What Keras would take from its file and from KERAS_BACKEND; the file may be damaged, Keras ignores it then."""
    settings: dict[str, Any] = {}
    file = Path(environ.get("KERAS_HOME") or Path("~/.keras").expanduser()) / "keras.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = {}
    if isinstance(content, dict):
        known = ("backend", "floatx", "epsilon", "image_data_format", "dtype_policy")
        settings = {key: content[key] for key in known if key in content}
        if settings:
            settings["file"] = str(file)
    if environ.get("KERAS_BACKEND"):
        settings["backend"] = environ["KERAS_BACKEND"]
    settings.setdefault("backend", "tensorflow")
    return settings


def _devices() -> list[str]:
    found = [f"cpu {_cpu_name()}".strip()]
    tool = shutil.which("nvidia-smi")
    if tool:
        command = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
            lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
            found += [f"gpu {line}" for line in lines] if done.returncode == 0 else ["gpu (nvidia-smi cannot reach it)"]
        except (OSError, subprocess.TimeoutExpired):
            found.append("gpu (nvidia-smi does not answer)")
    if sys.platform == "darwin" and platform.machine() == "arm64":
        found.append("gpu Apple (mps)")
    return found


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()


# ---------------------------------------------------------------------------------------------------- problems
def find_problems(env: Environment) -> list[Problem]:
    """Every known-bad combination that ``env`` shows, faults first."""
    found = [problem for check in _CHECKS for problem in check(env)]
    return sorted(found, key=lambda problem: not problem.fault)


def number(version: str) -> tuple[int, ...]:
    """``2.13.0+cpu`` -> (2, 13, 0); an empty tuple when it is no version."""
    match = re.match(r"(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _tensorflows(env: Environment) -> dict[str, str]:
    names = ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-macos", "tf-nightly")
    found = {name: env.packages[name] for name in names if name in env.packages}
    if "tensorflow-intel" in found:  # the Windows wheel of `tensorflow` consists of it
        found.pop("tensorflow", None)
    return found


def _no_framework(env: Environment) -> list[Problem]:
    if "torch" in env.packages or "keras" in env.packages:
        return []
    what = "neither torch nor Keras is installed here"
    todo = "pip install 'ambidex[torch]' or 'ambidex[tensorflow]'; traces recorded elsewhere compare without"
    return [Problem(False, what, "models cannot be opened", todo)]


def _keras_generation(env: Environment) -> list[Problem]:
    found = []
    keras = env.packages.get("keras", "")
    for name, version in _tensorflows(env).items():
        if keras and number(keras) >= (3,) and (0,) < number(version) < (2, 16):
            why = "TensorFlow before 2.16 expects Keras 2 under tf.keras"
            found.append(Problem(True, f"{name} {version} with keras {keras}", why, "Install TensorFlow 2.18 or newer"))
    if keras and (0,) < number(keras) < (3,):
        todo = "pip install 'keras>=3.8'"
        found.append(Problem(True, f"keras {keras} is installed", "ambidex compares Keras 3 models", todo))
    if env.variables.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        why = "tf.keras is then tf_keras (Keras 2), whose models this version does not reach"
        found.append(Problem(True, "TF_USE_LEGACY_KERAS is set", why, "unset TF_USE_LEGACY_KERAS"))
    return found


def _keras_backend(env: Environment) -> list[Problem]:
    if "keras" not in env.packages:
        return []
    backend = str(env.keras.get("backend"))
    needs: dict[str, bool] = {
        "tensorflow": bool(_tensorflows(env)),
        "torch": "torch" in env.packages,
        "jax": "jax" in env.packages,
    }
    if backend in needs and not needs[backend]:
        why = f"Keras would fail on import, as {backend} is not installed"
        other = next((name for name, there in needs.items() if there), None)
        todo = f"export KERAS_BACKEND={other}" if other else f"pip install {backend}"
        return [Problem(True, f"the Keras backend is {backend}", why, todo)]
    if backend not in needs:
        why = "ambidex knows tensorflow, torch and jax"
        return [Problem(True, f"the Keras backend is {backend}", why, "export KERAS_BACKEND=tensorflow")]
    return []


def _keras_file(env: Environment) -> list[Problem]:
    found = []
    file = env.keras.get("file", "keras.json")
    floatx = env.keras.get("floatx", "float32")
    if floatx != "float32":
        why = "every Keras layer without a dtype of its own computes in it; torch stays in float32"
        found.append(
            Problem(True, f"floatx is {floatx}", f"{file} says so: {why}", f'set "floatx": "float32" in {file}')
        )
    if env.keras.get("image_data_format", "channels_last") != "channels_last":
        why = "every convolution and pooling without a data_format of its own reads channels first"
        todo = f'set "image_data_format": "channels_last" in {file}, or name data_format in the model'
        found.append(Problem(False, "image_data_format is channels_first", f"{file} says so: {why}", todo))
    return found


def _numpy_abi(env: Environment) -> list[Problem]:
    if number(env.packages.get("numpy", "")) < (2,):
        return []
    found = []
    why = "it was built for NumPy 1"
    for name, version in [("torch", env.packages.get("torch", "")), *_tensorflows(env).items()]:
        oldest = (2, 3) if name == "torch" else (2, 18)
        if version and (0,) < number(version) < oldest:
            todo = f"pip install 'numpy<2', or {name} {'.'.join(map(str, oldest))} and newer"
            found.append(Problem(True, f"{name} {version} with numpy {env.packages['numpy']}", why, todo))
    return found


def _two_tensorflows(env: Environment) -> list[Problem]:
    found = _tensorflows(env)
    if len(found) < 2:
        return []
    names = " and ".join(f"{name} {version}" for name, version in found.items())
    why = "they share one folder; the one installed last has overwritten the other's files"
    return [Problem(True, f"{names} are both installed", why, f"pip uninstall {' '.join(found)}, then install one")]


def _two_onnxruntimes(env: Environment) -> list[Problem]:
    if "onnxruntime" in env.packages and "onnxruntime-gpu" in env.packages:
        why = "they share one folder; the one installed last has overwritten the other's files"
        todo = "pip uninstall onnxruntime onnxruntime-gpu, then install one"
        return [Problem(True, "onnxruntime and onnxruntime-gpu are both installed", why, todo)]
    return []


def _jax_pair(env: Environment) -> list[Problem]:
    jax, lib = number(env.packages.get("jax", "")), number(env.packages.get("jaxlib", ""))
    if jax and lib and jax < lib:
        what = f"jax {env.packages['jax']} with jaxlib {env.packages['jaxlib']}"
        return [Problem(True, what, "jaxlib must not be newer than jax", "pip install -U jax")]
    return []


def _tensor_float_32(env: Environment) -> list[Problem]:
    if not any(device.startswith("gpu") for device in env.devices) or env.variables.get("NVIDIA_TF32_OVERRIDE") == "0":
        return []
    why = "TensorFlow multiplies float32 in TF32 on such GPUs and torch does not (matmul): about 1e-3 relative apart"
    todo = "compare on CPU (CUDA_VISIBLE_DEVICES=-1), or export NVIDIA_TF32_OVERRIDE=0"
    if any(device.startswith("gpu NVIDIA") for device in env.devices) and _tensorflows(env):
        return [Problem(False, "TF32 is not switched off", why, todo)]
    return []


def _flash_gradient(env: Environment) -> list[Problem]:
    if number(env.packages.get("torch", ""))[:2] != (2, 13):
        return []
    what = f"torch {env.packages['torch']}: wrong gradients of fully masked attention rows on CPU"
    why = "its CPU flash attention errs when the mask is -1e9 or finfo.min; the forward pass is right"
    return [Problem(False, what, why, "for training use torch.nn.attention.sdpa_kernel(SDPBackend.MATH)")]


def _threads(env: Environment) -> list[Problem]:
    found = []
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        value = env.variables.get(name, "")
        if value and not value.replace(",", "").isdecimal():
            found.append(Problem(True, f"{name} is {value!r}", "that is no number of threads", f"export {name}=1"))
        elif value.isdecimal() and int(value) > env.cpu_count:
            why = f"{env.cpu_count} CPUs may be used here; more threads only wait for one another"
            found.append(Problem(False, f"{name} is {value}", why, f"export {name}={env.cpu_count}"))
    return found


def _reordered_sums(env: Environment) -> list[Problem]:
    flags = env.variables.get("XLA_FLAGS", "")
    if "xla_cpu_enable_fast_math=true" in flags:
        why = "it changes NaN, infinity and division"
        return [Problem(False, "XLA_FLAGS switches fast math on", why, "take it out of XLA_FLAGS to compare")]
    return []


_CHECKS: tuple[Callable[[Environment], list[Problem]], ...] = (
    _no_framework,
    _keras_generation,
    _keras_backend,
    _keras_file,
    _numpy_abi,
    _two_tensorflows,
    _two_onnxruntimes,
    _jax_pair,
    _tensor_float_32,
    _flash_gradient,
    _threads,
    _reordered_sums,
)
