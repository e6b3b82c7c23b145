"""What people hand over for a torch side: losses, optimizers, schedulers, metrics of every make."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler as sched

from ambidex.adapters import torch_
from ambidex.core.training import Example
from ambidex.errors import AmbidexError, InputError, RunError, UnsupportedError

RNG = np.random.default_rng(7)
X = RNG.standard_normal((8, 6)).astype(np.float32)
Y = RNG.integers(0, 3, 8)
EXAMPLES = [Example([X[i : i + 2]], Y[i : i + 2]) for i in range(0, 8, 2)]


class Net(nn.Module):
    def __init__(self, wrap: Callable[[torch.Tensor], Any] = lambda y: y) -> None:
        super().__init__()
        self.a, self.n, self.b, self.wrap = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3), wrap

    def forward(self, x: torch.Tensor) -> Any:
        return self.wrap(self.b(torch.tanh(self.n(self.a(x)))))


def made(wrap: Callable[[torch.Tensor], Any] = lambda y: y) -> Any:
    torch.manual_seed(0)
    return torch_.wrap(Net(wrap).eval())


def weights_of(model: Any) -> dict[str, np.ndarray]:
    return {n: np.array(a) for n, a in model.weights().items()}


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


GIVEN: dict[str, Any] = {"loss": nn.CrossEntropyLoss(), "optimizer": sgd}


# ------------------------------------------------------------------------------------------------------------- outputs
class Pair(NamedTuple):
    logits: Any
    extra: Any


@dataclasses.dataclass(frozen=True)
class Answer:
    logits: Any
    hidden: Any
    loss: Any = None


class Dictionary(dict):  # type: ignore[type-arg]
    """As outputs of libraries are: made from keywords, with attributes."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)
        self.__dict__.update(values)


STRUCTURES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tensor": (lambda y: y, lambda out: out),
    "tuple of one": (lambda y: (y,), lambda out: out[0]),
    "list": (lambda y: [y, 2 * y], lambda out: out[0] + 0 * out[1]),
    "named tuple": (lambda y: Pair(y, None), lambda out: out.logits),
    "dataclass": (lambda y: Answer(y, (2 * y, y)), lambda out: out.logits + 0 * out.hidden[0]),
    "dictionary with dots": (lambda y: {"head.0": y, 3: 2 * y}, lambda out: out["head.0"] + 0 * out[3]),
    "of a library": (lambda y: Dictionary(logits=y, aux={"a": 2 * y}), lambda out: out.logits + 0 * out["aux"]["a"]),
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_loss_gets_what_the_model_returned(name: str) -> None:
    wrap, read = STRUCTURES[name]
    model = made(wrap)
    trainer = torch_.trainer(model, {"loss": lambda out, y: F.cross_entropy(read(out), y),
                                     "metric": lambda out, y: (read(out).argmax(-1) == y).float().mean()})  # fmt: skip
    outputs = model.run([X]).outputs
    got = trainer.loss(outputs, Y)
    logits = next(iter(outputs.values()))
    leaf = torch.tensor(logits, requires_grad=True)
    loss = F.cross_entropy(leaf, torch.tensor(Y))
    loss.backward()
    assert leaf.grad is not None and got.value == pytest.approx(loss.item(), rel=1e-6)
    np.testing.assert_allclose(next(iter(got.gradients.values())), leaf.grad.numpy(), rtol=1e-6)
    assert trainer.metric(outputs, Y) == pytest.approx((logits.argmax(-1) == Y).mean())
    assert trainer.gradients(Example([X], Y)).loss == pytest.approx(got.value, rel=1e-6)


# -------------------------------------------------------------------------------------------------------------- losses
def test_a_loss_that_holds_weights_leaves_no_gradients() -> None:
    model = made()
    module = model.module

    class Penalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            self.seen += 1
            return self.scale * F.cross_entropy(out, y) + 0.1 * sum((p**2).sum() for p in module.parameters())

    loss = Penalised()
    trainer = torch_.trainer(model, {"loss": loss, "optimizer": sgd})
    before = weights_of(model)
    value = trainer.loss(model.run([X]).outputs, Y).value
    whole = trainer.gradients(EXAMPLES[0])
    trainer.steps(EXAMPLES)
    assert value > F.cross_entropy(module(torch.tensor(X)), torch.tensor(Y)).item() and whole.weights["n.weight"].any()
    assert all(p.grad is None for p in [*module.parameters(), loss.scale]) and float(loss.seen) == 0
    assert all(np.array_equal(a, before[n]) for n, a in weights_of(model).items())


LOSSES = {
    "margin": nn.MultiLabelSoftMarginLoss(),
    "margin, sum": nn.MultiLabelSoftMarginLoss(reduction="sum"),
    "margin function": F.multilabel_soft_margin_loss,
    "old words": functools.partial(F.mse_loss, size_average=False),
    "older words": functools.partial(F.binary_cross_entropy_with_logits, reduce=True),
}


@pytest.mark.filterwarnings("ignore:size_average and reduce")
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_torch_are_told_by_name(name: str) -> None:
    from ambidex.engine.stages import losses

    out, y = RNG.standard_normal((5, 3)).astype(np.float32), RNG.integers(0, 2, (5, 3)).astype(np.float32)
    trainer = torch_.trainer(made(), {"loss": LOSSES[name]})
    form, got = trainer.forms["loss"], trainer.loss({"0": out}, y)
    assert form.op and losses.value(form.op, form.attrs, out, y) == pytest.approx(got.value, rel=1e-6)


def test_whole_numbers_are_made_real_for_losses_that_need_it() -> None:
    trainer = torch_.trainer(made(), {"loss": nn.BCEWithLogitsLoss()})
    out = RNG.standard_normal((4, 1)).astype(np.float32)
    y = np.array([[0], [1], [1], [0]])
    assert trainer.loss({"0": out}, y).value == trainer.loss({"0": out}, y.astype(np.float32)).value


def test_weights_of_samples_go_to_a_loss_that_takes_them() -> None:
    w = RNG.uniform(0.5, 2.0, 8).astype(np.float32)
    out = RNG.standard_normal((8, 3)).astype(np.float32)

    def weighted(outputs: Any, targets: Any, weights: Any) -> torch.Tensor:
        return (F.cross_entropy(outputs, targets, reduction="none") * weights).mean()

    got = torch_.trainer(made(), {"loss": weighted}).loss({"0": out}, Y, w)
    each = F.cross_entropy(torch.tensor(out), torch.tensor(Y), reduction="none").numpy()
    assert got.value == pytest.approx(float((each * w).mean()), rel=1e-6)
    for other in (nn.CrossEntropyLoss(), F.cross_entropy, functools.partial(F.cross_entropy, label_smoothing=0.1),
                  lambda out, y: F.cross_entropy(out, y), lambda out, y, gamma=2: F.cross_entropy(out, y)):  # fmt: skip
        with pytest.raises(InputError, match="weights of samples"):
            torch_.trainer(made(), {"loss": other}).loss({"0": out}, Y, w)


class Gathering:
    """A metric with state, as those of torchmetrics."""

    def __init__(self) -> None:
        self.right = self.count = 0

    def reset(self) -> None:
        self.right = self.count = 0

    def update(self, out: torch.Tensor, y: torch.Tensor) -> None:
        self.right += int((out.argmax(-1) == y).sum())
        self.count += len(y)

    def __call__(self, out: torch.Tensor, y: torch.Tensor) -> float:
        self.update(out, y)
        return self.right / self.count


def test_a_metric_with_state_starts_empty_and_stays_as_it_was() -> None:
    metric = Gathering()
    metric.update(torch.eye(3), torch.tensor([1, 2, 0]))
    trainer = torch_.trainer(made(), {"metric": metric})
    assert trainer.metric({"0": np.eye(3, dtype=np.float32)}, np.arange(3)) == 1.0
    assert (metric.right, metric.count) == (0, 3)


# ---------------------------------------------------------------------------------------------------------- optimizers
def test_an_optimizer_object_is_used_as_new() -> None:
    model = made()
    optimizer = torch.optim.Adam(model.module.parameters(), 0.1)
    scheduler = sched.ExponentialLR(optimizer, 0.5)
    for p in model.module.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    scheduler.step()
    trainer = torch_.trainer(model, {"optimizer": optimizer, "scheduler": lambda o: sched.ExponentialLR(o, 0.5)})
    assert trainer.forms["optimizer"].attrs["learning_rate"] == 0.1
    assert trainer.rates(3) == pytest.approx([0.1, 0.05, 0.025])
    assert optimizer.param_groups[0]["lr"] == 0.05 and len(optimizer.state) == len(list(model.module.parameters()))


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda named_parameters: torch.optim.SGD([p for n, p in named_parameters if not n.startswith("n.")], 0.1),
        lambda model: torch.optim.SGD([*model.a.parameters(), *model.b.parameters()], 0.1),
    ],
)
def test_an_optimizer_may_choose_by_name(optimizer: Any) -> None:
    form = torch_.trainer(made(), {"optimizer": optimizer}).forms["optimizer"]
    assert form.by_weight == {"n.weight": {"frozen": True}, "n.bias": {"frozen": True}}


def test_weights_that_ask_for_no_gradient_stay() -> None:
    model = made()
    model.module.a.requires_grad_(False)
    trainer = torch_.trainer(model, {**GIVEN, "optimizer": functools.partial(torch.optim.AdamW, lr=0.1)})
    assert trainer.forms["optimizer"].by_weight == {"a.weight": {"frozen": True}, "a.bias": {"frozen": True}}
    before = weights_of(model)
    gradients = {n: np.ones_like(a) for n, a in before.items() if a.dtype.kind == "f"}
    for after in (trainer.update([gradients], [1.0])[0], trainer.steps(EXAMPLES).weights):
        moved = {n for n, a in after.items() if not np.array_equal(a, before[n])}
        assert moved >= {"b.weight", "n.weight"} and not moved & {"a.weight", "a.bias"}
    assert "a.weight" not in trainer.gradients(EXAMPLES[0]).weights


def test_gradients_of_a_sparse_table_and_a_table_with_a_largest_norm() -> None:
    torch.manual_seed(0)
    table = nn.Embedding(6, 4, sparse=True, max_norm=0.5)
    module = nn.Sequential(table, nn.Flatten(), nn.Linear(8, 3))
    model = torch_.wrap(module.eval())
    before = weights_of(model)
    ids = np.array([[0, 2], [2, 5]])
    trainer = torch_.trainer(model, {"loss": nn.CrossEntropyLoss(), "optimizer": lambda p: torch.optim.SparseAdam(
        [table.weight], lr=0.1)})  # fmt: skip
    slope = trainer.gradients(Example([ids], np.array([0, 1]))).weights["0.weight"]
    assert slope.shape == (6, 4) and slope[2].any() and not slope[1].any()
    after = trainer.update([{"0.weight": slope}], [1.0])[0]["0.weight"]
    moved = (after != before["0.weight"]).any(1)
    np.testing.assert_array_equal(moved, [True, False, True, False, False, True])
    assert all(np.array_equal(a, before[n]) for n, a in weights_of(model).items())


# ---------------------------------------------------------------------------------------------------------- schedulers
def test_a_scheduler_of_the_users_own_has_no_name() -> None:
    class Own(sched.StepLR):
        def get_lr(self) -> list[float]:
            return [0.5 for _ in self.base_lrs]

    trainer = torch_.trainer(made(), {**GIVEN, "scheduler": lambda o: Own(o, 3)})
    assert trainer.forms["schedule"].op == "" and trainer.forms["schedule"].cls == "Own"


@pytest.mark.parametrize("divide", [True, False])
def test_accumulated_steps_with_a_scheduler_by_function(divide: bool) -> None:
    given = {**GIVEN, "accumulate": 2, "divide": divide,
             "scheduler": lambda o: sched.LambdaLR(o, lambda k: 1 / (1 + k))}  # fmt: skip
    model = made()
    trainer = torch_.trainer(model, given)
    got = trainer.steps(EXAMPLES)
    assert trainer.averages is divide and trainer.rates(3) == pytest.approx([0.1, 0.05, 0.1 / 3])
    plain = copy.deepcopy(model.module).train()
    optimizer = sgd(plain.parameters())
    scheduler = sched.LambdaLR(optimizer, lambda k: 1 / (1 + k))
    for n, example in enumerate(EXAMPLES, start=1):
        loss = F.cross_entropy(plain(torch.tensor(example.batch[0])), torch.tensor(example.targets))
        assert got.losses[n - 1] == pytest.approx(loss.item(), rel=1e-5)
        (loss / 2 if divide else loss).backward()
        if n % 2 == 0:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    for n, t in [*plain.named_parameters(), *plain.named_buffers()]:
        np.testing.assert_allclose(got.weights[n], t.detach().numpy(), rtol=1e-5, atol=1e-7)


# -------------------------------------------------------------------------------------------------------------- errors
def broken(*_: Any) -> Any:
    raise ValueError("no such thing")


class Breaking(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.zero_()
        raise ValueError("no such thing")


class BreaksBackwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such thing")


def other_model(parameters: Any) -> torch.optim.Optimizer:
    return sgd(Net().parameters())


WRONG: dict[str, tuple[dict[str, Any], type[AmbidexError], str]] = {
    "a scheduler object": ({"scheduler": 3}, InputError, "scheduler of the torch side is no function"),
    "a scheduler alone": ({"optimizer": None, "scheduler": broken}, InputError, "no optimizer"),
    "no scheduler": ({"scheduler": lambda o: None}, InputError, "returned NoneType"),
    "another model's": ({"optimizer": other_model}, InputError, "no parameter of the model"),
    "an optimizer's step": ({"optimizer": lambda p: Breaking(p, 0.1)}, RunError, "step of the optimizer"),
    "a scheduler's step": ({"scheduler": lambda o: sched.OneCycleLR(o, 0.1, total_steps=2)}, RunError,
                           "step of the scheduler .* ValueError"),
    "a waiting scheduler": ({"scheduler": sched.ReduceLROnPlateau}, UnsupportedError, "ReduceLROnPlateau"),
    "a clipping": ({"clip": broken}, RunError, "clip of the torch side raised ValueError: no such thing"),
    "going back": ({"loss": lambda out, y: BreaksBackwards.apply(out).mean()}, RunError, "backward pass"),
    "leaving": ({"loss": lambda out, y: exit(3)}, RunError, "sys.exit"),
    "a class": ({"loss": nn.MSELoss}, InputError, r"the class MSELoss. Give MSELoss\(\)"),
    "no loss": ({"loss": None}, InputError, "no loss"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("name", WRONG)
def test_what_goes_wrong_is_one_sentence_and_changes_nothing(name: str) -> None:
    given, error, words = WRONG[name]
    model = made()
    before, state = weights_of(model), torch.get_rng_state()
    with pytest.raises(error, match=words):
        torch_.trainer(model, {**GIVEN, **given}).steps(EXAMPLES)
    assert all(np.array_equal(a, before[n]) for n, a in weights_of(model).items())
    assert torch.equal(torch.get_rng_state(), state) and not any(m.training for m in model.module.modules())
    assert all(p.grad is None and "forward" not in vars(model.module) for p in model.module.parameters())


def test_a_model_that_raises_when_it_trains() -> None:
    model = made(lambda y: broken() if y.requires_grad else y)
    model.run([X])
    with pytest.raises(RunError, match="forward of the torch side raised ValueError: no such thing"):
        torch_.trainer(model, GIVEN).gradients(EXAMPLES[0], training=True)
    assert not any("forward" in vars(m) or m.training for m in model.module.modules())


def test_weights_made_in_inference_mode_cannot_be_trained() -> None:
    with torch.inference_mode():
        model = made()
    with pytest.raises(InputError, match="'a.weight' of the torch side cannot be trained: it was made in inference"):
        torch_.trainer(model, GIVEN)
