"""Inputs from files and functions, signatures, and the probes made from them."""

from __future__ import annotations

import io
import itertools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from ambidex.core.model import TensorSpec
from ambidex.engine.inputs import as_inputs, as_signature, load_inputs, parse_signature, probe_inputs
from ambidex.errors import AmbidexError, InputError, SpecError


# ---------------------------------------------------------------------------------------------------- files
def test_named_arrays_become_a_dictionary_in_order(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", ids=np.arange(3), age=np.ones(2), b=np.zeros(1))
    batch = load_inputs(str(tmp_path / "x.npz")).reference
    assert isinstance(batch, dict) and list(batch) == ["ids", "age", "b"]


def test_positional_arrays_become_a_list(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", *[np.full(2, n) for n in range(12)])
    batch = load_inputs(str(tmp_path / "x.npz")).reference
    assert isinstance(batch, list) and [int(a[0]) for a in batch] == list(range(12))


def test_single_array_and_safetensors(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4.0))
    save_file({"ids": np.arange(3)}, tmp_path / "x.safetensors")
    (array,) = load_inputs(str(tmp_path / "x.npy")).reference or []
    assert array.tolist() == [0, 1, 2, 3]
    loaded = load_inputs(str(tmp_path / "x.safetensors"))
    assert isinstance(loaded.reference, dict) and loaded.reference["ids"].tolist() == [0, 1, 2]
    assert loaded.described == [f"ids: int64[3] from {tmp_path / 'x.safetensors'}"]


def test_pickled_arrays_need_trust(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    np.savez(file, a=np.array([{"run": "me"}], dtype=object))
    with pytest.raises(InputError, match="holds pickled objects. Save plain numeric arrays, or pass --trust"):
        load_inputs(str(file))
    with pytest.raises(InputError, match="no numeric array"):
        load_inputs(str(file), trust=True)
    np.save(tmp_path / "x.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(InputError, match="--trust"):
        load_inputs(str(tmp_path / "x.npy"))


def test_a_pickle_that_runs_code_is_not_run(tmp_path: Path) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / "x.npy").write_bytes(pickle.dumps(Evil()))
    (tmp_path / "y.npz").write_bytes(pickle.dumps(Evil()))
    for name in ("x.npy", "y.npz"):
        with pytest.raises(InputError):
            load_inputs(str(tmp_path / name))
    assert not (tmp_path / "ran").exists()


def bomb() -> bytes:
    """An .npy header that claims far more than there is."""
    file = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (2**40, 2**20)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + b"1234"


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("x.npz", b"", "damaged"),
        ("x.npy", b"\x93NUMPY\x01\x00", "damaged"),
        ("x.npy", b"not an array", "pickled|damaged"),
        ("x.npz", b"PK\x03\x04 cut", "damaged"),
        ("x.npy", bomb(), "damaged|memory"),
        ("x.npz", "npy", "no .npz file"),
        ("x.npy", "npz", "no .npy file"),
        ("x.safetensors", b"\xff" * 12, "header claims"),
    ],
)
def test_damaged_files_are_told(tmp_path: Path, name: str, content: Any, words: str) -> None:
    if content == "npy":
        file = io.BytesIO()
        np.save(file, np.ones(2))
        content = file.getvalue()
    elif content == "npz":
        file = io.BytesIO()
        np.savez(file, np.ones(2))
        content = file.getvalue()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        load_inputs(str(tmp_path / name))


def test_an_array_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.ones(2))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive, pytest.warns(UserWarning):
        archive.writestr("a.npy", file.getvalue())
        archive.writestr("a.npy", file.getvalue())
    with pytest.raises(InputError, match="twice"):
        load_inputs(str(tmp_path / "x.npz"))


def test_missing_and_unknown_files(tmp_path: Path) -> None:
    np.save(tmp_path / "batch.npy", np.ones(2))
    with pytest.raises(SpecError, match="batsh.npy' does not exist. Did you mean 'batch.npy'"):
        load_inputs(str(tmp_path / "batsh.npy"))
    with pytest.raises(InputError, match="its kind is not known. Say FILE.npz"):
        load_inputs("x.csv")


# ---------------------------------------------------------------------------------------------------- functions
def code(tmp_path: Path, body: str) -> str:
    file = tmp_path / f"feed_{abs(hash(body))}.py"
    file.write_text(f"import numpy as np\ndef make():\n    return {body}\nREADY = [np.ones(2)]\n")
    return f"{file}:make"


@pytest.mark.parametrize(
    "body, kinds",
    [
        ("np.ones((2, 3))", ["float64"]),
        ("(np.ones(2), np.arange(3))", ["float64", "int64"]),
        ("[np.ones(2), [1, 2]]", ["float64", "int64"]),
        ("[[1, 2], [3, 4]]", ["int64"]),
        ("([1, 2], [3.0, 4])", ["int64", "float64"]),
        ("[1.0, 2.0]", ["float64"]),
    ],
)
def test_functions_give_arrays_or_several(tmp_path: Path, body: str, kinds: list[str]) -> None:
    batch = load_inputs(code(tmp_path, body)).reference
    assert isinstance(batch, list) and [str(a.dtype) for a in batch] == kinds


def test_functions_give_names_sides_and_masks(tmp_path: Path) -> None:
    assert list(load_inputs(code(tmp_path, "{'b': np.ones(1), 'a': np.ones(2)}")).reference or ()) == ["b", "a"]
    both = load_inputs(
        code(tmp_path, "{'reference': np.ones(2), 'candidate': {'x': np.ones(3)}, 'masks': {'valid': [1, 0]}}")
    )
    assert isinstance(both.reference, list) and isinstance(both.candidate, dict)
    assert both.masks["valid"].tolist() == [True, False]
    assert len(both.described) == 2 and both.described[1].startswith("candidate x: float64[3]")
    one = load_inputs(code(tmp_path, "{'reference': np.ones(2), 'masks': np.ones(2)}"))
    assert one.candidate is None and one.masks["0"].all()


def test_a_ready_value_is_taken_too(tmp_path: Path) -> None:
    spec = code(tmp_path, "0").replace(":make", ":READY")
    assert len(load_inputs(spec).reference or ()) == 1


@pytest.mark.parametrize(
    "body, words",
    [
        ("None", "is a NoneType and no array"),
        ("'text'", "is a str and no array"),
        ("{}", "holds no array"),
        ("[]", "holds no array"),
        ("{1: np.ones(2)}", "has the key 1"),
        ("{'a': 'b'}", "'a' is a str"),
        ("np.array(['a'])", "its type is <U1"),
        ("[np.ones(2), object()]", "number 1 is no numeric array"),
        ("[object()]", "is no numeric array"),
        ("[np.ones(2), [[1], [1, 2]]]", "number 1 is no array"),
        ("1 / 0", "'.*:make' raised: ZeroDivisionError in .*:3: division by zero"),
    ],
)
def test_what_is_no_input_is_told(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(AmbidexError, match=words):
        load_inputs(code(tmp_path, body))


def test_input_functions_are_called_without_arguments(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def feed(n): return n\n")
    with pytest.raises(SpecError, match="needs the argument 'n': input functions are called without arguments"):
        load_inputs(f"{tmp_path}/f.py:feed")
    with pytest.raises(SpecError, match="has no 'fed'. Did you mean 'feed'"):
        load_inputs(f"{tmp_path}/f.py:fed")


class Tensor:
    """Looks like a torch tensor, or like a TensorFlow one."""

    def __init__(self, array: np.ndarray, dtype: str = "torch.float32", torch: bool = True) -> None:
        self.array, self.dtype = array, dtype
        if torch:
            self.detach = self.cpu = lambda: self
            self.float = lambda: Tensor(self.array, "torch.float32")

    def numpy(self) -> np.ndarray:
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array


@pytest.mark.parametrize(
    "tensor", [Tensor(np.ones(2)), Tensor(np.ones(2), "torch.bfloat16"), Tensor(np.ones(2), "x", False)]
)
def test_tensors_are_taken_by_what_they_can_do(tensor: Tensor) -> None:
    (array,) = as_inputs(tensor).reference or ()
    assert isinstance(array, np.ndarray) and array.sum() == 2


# ---------------------------------------------------------------------------------------------------- signatures
def test_signatures_are_read() -> None:
    ids, x, s = parse_signature(" int64[None, None]<30522 , float32[2,3],float32[]")
    assert (ids.name, ids.dtype, ids.shape, ids.high) == ("0", "int64", (None, None), 30522)
    assert (x.name, x.shape, x.high, s.shape) == ("1", (2, 3), None, ())
    q, mask = parse_signature("q: float32[B, S, 8], mask: bool[B,S]")
    assert (q.name, q.shape, mask.name, mask.shape) == ("q", (None, None, 8), "mask", (None, None))


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "it is empty"),
        ("int64", "'int64' is no dtype\\[shape\\]"),
        ("int64[None", "is no dtype"),
        ("int64[None],", "an input is missing"),
        ("int64[None] float32[2]", "a comma is missing before 'float32"),
        ("int65[2]", "'int65' is no input type. Did you mean 'int64'"),
        ("bfloat16[2]", "'bfloat16' is no input type"),
        ("float32[0]", "'0' is no size"),
        ("float32[-1]", "'-1' is no size"),
        ("float32[2.5]", "'2.5' is no size"),
        ("float32[2]<5", "float32 holds none"),
        ("int64[2]<x", "'<x' is no limit"),
        ("int8[2]<1000", "do not fit in int8"),
        ("a: int64[2], a: int64[2]", "two inputs are called 'a'"),
        ("a: int64[2], int64[2]", "some inputs have a name and some have none"),
        ("x.py:SIG", "'x.py' does not exist"),
    ],
)
def test_wrong_signatures_are_told(text: str, words: str) -> None:
    with pytest.raises(AmbidexError, match=words):
        parse_signature(text)


def test_signatures_from_files_and_values(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("SIG = [('int64', (None, 4)), ('float32', [2])]\nBAD = [('int64', 3)]\nX = 3\n")
    first, second = parse_signature(f"{tmp_path}/s.py:SIG")
    assert (first.dtype, first.shape, second.shape) == ("int64", (None, 4), (2,))
    for name, words in (("BAD", "entry 0 is"), ("X", "a int is no list"), ("SIK", "Did you mean 'SIG'|has no 'SIK'")):
        with pytest.raises(AmbidexError, match=words):
            parse_signature(f"{tmp_path}/s.py:{name}")
    (named,) = as_signature({"x": (np.float32, (None, 2))})
    assert (named.name, named.dtype) == ("x", "float32")
    with pytest.raises(InputError, match="the size -2"):
        as_signature([("float32", (-2,))])


# ---------------------------------------------------------------------------------------------------- probes
def batch_of(text: str, **options: Any) -> list[np.ndarray]:
    batch = probe_inputs(parse_signature(text), **options).reference
    assert isinstance(batch, list)
    return batch


def is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, n))


def test_open_sizes_are_pairwise_different_primes() -> None:
    (image,) = batch_of("float32[None,3,None,None]")
    sizes = [image.shape[0], *image.shape[2:]]
    assert len(set(sizes)) == 3 and all(map(is_prime, sizes)) and 3 not in sizes and sizes[0] > 1


def test_axes_of_one_name_get_one_size() -> None:
    q, k, mask = batch_of("float32[B,S,8], float32[B,T,8], bool[B,T]".replace("float32[B,S,8]", "float32[B,S,8]"))
    assert q.shape[0] == k.shape[0] == mask.shape[0] and k.shape[1] == mask.shape[1] != q.shape[1]


def test_unnamed_axes_are_shared_or_different_as_asked() -> None:
    ids, mask = batch_of("int64[None,None]<9, bool[None,None]")
    assert ids.shape == mask.shape
    source, target = batch_of("int64[None,None]<9, int64[None,None]<9", lengths="different")
    assert source.shape[0] == target.shape[0] and source.shape[1] != target.shape[1]


def test_probes_repeat_and_depend_on_the_seed() -> None:
    once, again, other = (batch_of("float32[None,7]", seed=s)[0] for s in (0, 0, 1))
    assert np.array_equal(once, again) and not np.array_equal(once, other)


def test_float_rows_are_of_several_kinds() -> None:
    (x,) = batch_of("float32[None,16]")
    spread = x.std(axis=1)
    assert x.dtype == np.float32 and (spread < 0.01).any() and (spread > 0.5).any()
    assert (x < 0).all(axis=1).any() and (np.abs(x).max(axis=1) > 2).any()


@given(st.integers(2, 40000), st.integers(0, 5))
def test_ids_cover_the_vocabulary_and_stay_in_it(high: int, seed: int) -> None:
    (ids,) = batch_of(f"int64[None,None]<{high}", seed=seed)
    assert ids.min() == 0 and ids.max() == high - 1
    for row in ids:  # 0 stands at the ends of rows only, as padding does
        length = np.flatnonzero(row).max(initial=-1) + 1
        assert (row[:length] != 0).all()
    lengths = {int((row != 0).sum()) for row in ids}
    assert len(lengths) >= 3 and ids.shape[1] in lengths


def test_single_ids_and_small_vocabularies() -> None:
    (users,) = batch_of("int32[None]<1000")
    assert users.dtype == np.int32 and {0, 999} <= set(users.tolist())
    assert batch_of("int64[None,None]<1")[0].max() == 0
    inputs = probe_inputs(parse_signature("int64[None,None]"))
    assert "vocabulary is not known" in inputs.described[0]


def test_masks_have_a_full_row_and_an_empty_one() -> None:
    (mask,) = batch_of("bool[None,None]")
    assert mask[0].all() and not mask[-1].any() and len({int(row.sum()) for row in mask}) >= 3


def test_probes_are_described_and_named() -> None:
    inputs = probe_inputs(parse_signature("ids: int64[None,None]<50, x: float32[None,4]"))
    assert isinstance(inputs.reference, dict) and list(inputs.reference) == ["ids", "x"]
    assert inputs.described[0] == "ids: probe int64[5, 13], ids 0..49, rows padded with 0 to two lengths (seed 0)"
    assert inputs.described[1].startswith("x: probe float32[5, 4], rows in turn normal, of low variance, all negative")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["bool", "int8", "uint8", "int64", "float16", "float32", "float64"]),
            st.lists(st.none() | st.integers(1, 5), max_size=4),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_signature_gives_arrays_of_its_types_and_shapes(signature: list[tuple[str, list[int | None]]]) -> None:
    specs = as_signature(signature)
    batch = probe_inputs(specs).reference
    assert isinstance(batch, list)
    for spec, array in itertools.zip_longest(specs, batch):
        assert str(array.dtype) == spec.dtype and array.ndim == len(spec.shape or ())
        assert all(n is None or n == m for n, m in zip(spec.shape or (), array.shape, strict=True))
        assert np.isfinite(array).all()


def test_what_cannot_be_probed_is_told() -> None:
    with pytest.raises(InputError, match="input 'x' declares no shape"):
        probe_inputs([TensorSpec("x", "float32", None)])
    with pytest.raises(InputError, match="holds no input"):
        probe_inputs([])
    with pytest.raises(InputError, match="too many sizes open"):
        probe_inputs(as_signature([("float32", [None] * 20)]))
