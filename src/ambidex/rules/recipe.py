"""How rules about training write settings: both sides' values, the argument's name in each framework, whole calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ambidex.core.rule import Cause
from ambidex.core.training_ops import FORMS
from ambidex.rules.words import Known, code, number, write


class _Unknown:
    """A value that the cause does not hold: it reads "another value", and in code it is left open."""

    def __str__(self) -> str:
        return "another value"

    def __repr__(self) -> str:
        return "..."


UNKNOWN = _Unknown()
_TWO = {"weights_by": ("sum", "count"), "scope": ("global", "weight"), "curve": ("ROC", "PR")}


class Stage(Known):
    """A rule about a stage behind the forward pass."""

    unpaired, weight = "it is no layer: it shows in a stage of training", 40


_KERAS_RATES, _TORCH_RATES = "keras.optimizers.schedules.", "torch.optim.lr_scheduler."
#: canonical name -> (in words, torch class, Keras class)
_CLASSES: dict[str, tuple[str, str, str]] = {
    "CrossEntropy": ("cross-entropy", "nn.CrossEntropyLoss", "keras.losses.SparseCategoricalCrossentropy"),
    "BinaryCrossEntropy": ("binary cross-entropy", "nn.BCEWithLogitsLoss", "keras.losses.BinaryCrossentropy"),
    "FocalBinary": ("focal loss", "torchvision.ops.sigmoid_focal_loss", "keras.losses.BinaryFocalCrossentropy"),
    "MSE": ("mean squared error", "nn.MSELoss", "keras.losses.MeanSquaredError"),
    "MAE": ("mean absolute error", "nn.L1Loss", "keras.losses.MeanAbsoluteError"),
    "Huber": ("Huber loss", "nn.HuberLoss", "keras.losses.Huber"),
    "SmoothL1": ("smooth L1 loss", "nn.SmoothL1Loss", ""),
    "KLDiv": ("KL divergence", "nn.KLDivLoss", "keras.losses.KLDivergence"),
    "Poisson": ("Poisson loss", "nn.PoissonNLLLoss", "keras.losses.Poisson"),
    "LogCosh": ("log-cosh loss", "", "keras.losses.LogCosh"),
    "Hinge": ("hinge loss", "", "keras.losses.Hinge"),
    "CategoricalHinge": ("categorical hinge loss", "", "keras.losses.CategoricalHinge"),
    "CosineLoss": ("cosine loss", "", "keras.losses.CosineSimilarity"),
    "SGD": ("SGD", "torch.optim.SGD", "keras.optimizers.SGD"),
    "Adam": ("Adam", "torch.optim.Adam", "keras.optimizers.Adam"),
    "Adamax": ("Adamax", "torch.optim.Adamax", "keras.optimizers.Adamax"),
    "Nadam": ("Nadam", "torch.optim.NAdam", "keras.optimizers.Nadam"),
    "Adagrad": ("Adagrad", "torch.optim.Adagrad", "keras.optimizers.Adagrad"),
    "RMSprop": ("RMSprop", "torch.optim.RMSprop", "keras.optimizers.RMSprop"),
    "Adadelta": ("Adadelta", "torch.optim.Adadelta", "keras.optimizers.Adadelta"),
    "Adafactor": ("Adafactor", "torch.optim.Adafactor", "keras.optimizers.Adafactor"),
    "Lion": ("Lion", "", "keras.optimizers.Lion"),
    "Constant": ("constant rate", "", ""),
    "Step": ("exponential decay", f"{_TORCH_RATES}StepLR", f"{_KERAS_RATES}ExponentialDecay"),
    "MultiStep": ("rate by steps", f"{_TORCH_RATES}MultiStepLR", f"{_KERAS_RATES}PiecewiseConstantDecay"),
    "Cosine": ("cosine decay", f"{_TORCH_RATES}CosineAnnealingLR", f"{_KERAS_RATES}CosineDecay"),
    "CosineRestarts": ("cosine decay with restarts", f"{_TORCH_RATES}CosineAnnealingWarmRestarts",
                       f"{_KERAS_RATES}CosineDecayRestarts"),
    "Polynomial": ("polynomial decay", f"{_TORCH_RATES}PolynomialLR", f"{_KERAS_RATES}PolynomialDecay"),
    "InverseTime": ("inverse time decay", "", f"{_KERAS_RATES}InverseTimeDecay"),
    "Linear": ("linear warm-up", f"{_TORCH_RATES}LinearLR", ""),
    "AUC": ("AUC", "", "keras.metrics.AUC"),
    "Accuracy": ("accuracy", "", "keras.metrics.SparseCategoricalAccuracy"),
    "TopK": ("top-k accuracy", "", "keras.metrics.SparseTopKCategoricalAccuracy"),
    "Precision": ("precision", "", "keras.metrics.Precision"),
    "Recall": ("recall", "", "keras.metrics.Recall"),
    "F1": ("F1", "", "keras.metrics.F1Score"),
    "R2": ("R2", "", "keras.metrics.R2Score"),
    **{n: (n, "", f"keras.metrics.{n}")
       for n in ("MeanSquaredError", "MeanAbsoluteError", "RootMeanSquaredError")},
    "ClipNorm": ("clipping by norm", "nn.utils.clip_grad_norm_", ""),
    "ClipValue": ("clipping by value", "nn.utils.clip_grad_value_", ""),
}  # fmt: skip
#: what one framework lacks, as a formula (out, y: outputs and targets; t: the number of the update)
_FORMULAS: dict[str, str] = {
    "SmoothL1": "lambda y, out: keras.losses.Huber(delta={beta})(y, out) / {beta}",
    "LogCosh": "lambda out, y: (out - y + F.softplus(-2 * (out - y)) - math.log(2)).mean()",
    "Hinge": "lambda out, y: torch.clamp(1 - y * out, min=0).mean()",
    "CategoricalHinge": "lambda out, y: torch.clamp((out * (1 - y)).amax(-1) - (out * y).sum(-1) + 1, min=0).mean()",
    "CosineLoss": "lambda out, y: -F.cosine_similarity(out, y, dim=-1).mean()",
    "Lion": "an own torch.optim.Optimizer: w -= lr * sign(beta_1 * m + (1 - beta_1) * g)",
    "InverseTime": "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + {rate} * t / {steps}))",
    "Linear": "a LearningRateSchedule: lr * ({start} + ({end} - {start}) * min(step, {steps}) / {steps})",
}  # fmt: skip
#: other classes of the frameworks that an adapter describes by these forms
_ALSO = {"nn.NLLLoss", "nn.BCELoss", "torch.optim.AdamW", f"{_TORCH_RATES}ExponentialLR",
         "keras.losses.CategoricalCrossentropy", "keras.optimizers.AdamW", "keras.metrics.BinaryAccuracy",
         "keras.metrics.CategoricalAccuracy", "keras.metrics.TopKCategoricalAccuracy"}  # fmt: skip

#: attribute, or form and attribute -> argument in (torch, Keras); "" where there is none
_ARGUMENTS: dict[str, tuple[str, str]] = {
    "learning_rate": ("lr", "learning_rate"), "epsilon": ("eps", "epsilon"), "weight_decay": ("weight_decay",) * 2,
    "momentum": ("momentum",) * 2, "nesterov": ("nesterov",) * 2, "dampening": ("dampening", ""),
    "beta_1": ("betas", "beta_1"), "beta_2": ("betas", "beta_2"), "amsgrad": ("amsgrad",) * 2,
    "centered": ("centered",) * 2, "RMSprop.rho": ("alpha", "rho"), "rho": ("rho", "rho"),
    "initial": ("initial_accumulator_value",) * 2, "rate_decay": ("lr_decay", ""),
    "momentum_decay": ("momentum_decay", ""), "beta_2_decay": ("beta2_decay", "beta_2_decay"),
    "epsilon_1": ("eps", "epsilon_1"), "epsilon_2": ("eps", "epsilon_2"), "clip_threshold": ("d", "clip_threshold"),
    "relative_step": ("", "relative_step"),
    "label_smoothing": ("label_smoothing",) * 2, "ignore_index": ("ignore_index", "ignore_class"),
    "class_weights": ("weight", ""), "pos_weight": ("pos_weight", ""), "from_logits": ("", "from_logits"),
    "BinaryCrossEntropy.label_smoothing": ("", "label_smoothing"), "BinaryCrossEntropy.class_weights": ("", ""),
    "delta": ("delta", "delta"), "beta": ("beta", ""), "gamma": ("gamma", "gamma"), "alpha": ("alpha", "alpha"),
    "balanced": ("", "apply_class_balancing"), "log_target": ("log_target", ""), "log_input": ("log_input", ""),
    "Poisson.epsilon": ("eps", ""), "axis": ("", "axis"), "reduction": ("reduction", "reduction"),
    "CrossEntropy.axis": ("", ""), "CrossEntropy.epsilon": ("", ""), "CrossEntropy.log_input": ("", ""),
    "BinaryCrossEntropy.epsilon": ("", ""), "FocalBinary.epsilon": ("", ""), "KLDiv.epsilon": ("", ""),
    "step_size": ("step_size", "decay_steps"), "Step.gamma": ("gamma", "decay_rate"), "staircase": ("", "staircase"),
    "Cosine.steps": ("T_max", "decay_steps"), "CosineRestarts.steps": ("T_0", "first_decay_steps"),
    "Polynomial.steps": ("total_iters", "decay_steps"), "InverseTime.steps": ("", "decay_steps"),
    "Linear.steps": ("total_iters", ""), "start": ("start_factor", ""), "Linear.end": ("end_factor", ""),
    "Polynomial.end": ("", "end_learning_rate"), "power": ("power", "power"), "t_mul": ("T_mult", "t_mul"),
    "m_mul": ("", "m_mul"), "Cosine.alpha": ("eta_min", "alpha"), "CosineRestarts.alpha": ("eta_min", "alpha"),
    "rate": ("", "decay_rate"), "cycle": ("", "cycle"), "warmup_steps": ("", "warmup_steps"),
    "curve": ("", "curve"), "thresholds": ("", "num_thresholds"), "threshold": ("", "threshold"),
    "Precision.threshold": ("", "thresholds"), "Recall.threshold": ("", "thresholds"), "k": ("", "k"),
    "average": ("", "average"), "Accuracy.from_logits": ("", ""), "Accuracy.threshold": ("", ""),
    "Precision.from_logits": ("", ""), "Recall.from_logits": ("", ""), "F1.from_logits": ("", ""),
}  # fmt: skip
#: shares of the first rate in canonical words, rates in the framework's
_SHARES = {("eta_min", "torch"): "lr", ("end_learning_rate", "keras"): "initial_learning_rate"}


def ops_of(part: str) -> tuple[str, ...]:
    """The canonical forms of one part (loss, optimizer, clip, schedule, metric), and the part's own name: that is the
    operator of a cause where both sides are code of the user's own."""
    return (*(name for name, entry in FORMS.items() if entry.family == part), part)


def said(op: str) -> str:
    """What people call a form."""
    return _CLASSES[op][0] if op in _CLASSES else {"": "code of its own"}.get(op, op)


def sides(cause: Cause, name: str = "") -> tuple[Any, Any]:
    """(candidate's, reference's) value of an attribute. For a variant they stand among all attributes of the sides,
    and where the reference's are not told: the other one of two possible values, else UNKNOWN."""
    name = name or cause.name
    if cause.kind != "variant":
        return cause.candidate, cause.reference
    default = FORMS[cause.op].attrs.get(name) if cause.op in FORMS else None
    c, r = (x.get(name, default) if isinstance(x, dict) else UNKNOWN for x in (cause.candidate, cause.reference))
    two: tuple[Any, ...] = _TWO.get(name, (True, False) if isinstance(default, bool) else ())
    if r is UNKNOWN and c in two:
        r = two[1 - two.index(c)]
    return c, r


def argument(op: str, name: str, framework: str) -> str:
    """What a framework calls an attribute of a form; "" where it has no such argument."""
    found = _ARGUMENTS.get(f"{op}.{name}", _ARGUMENTS.get(name, ("", "")))
    return found[1 if framework == "keras" else 0]


def written(name: str, value: Any, argument: str, framework: str) -> str:
    """An attribute's value as the argument takes it."""
    if name in ("class_weights", "pos_weight") and value is not UNKNOWN and value is not None:
        values = value if isinstance(value, list | tuple) else [value]
        return f"torch.tensor([{', '.join(map(code, values))}])"
    if argument == "betas":
        return f"({code(value)}, ...)" if name == "beta_1" else f"(..., {code(value)})"
    if argument == "eps" and name in ("epsilon_1", "epsilon_2"):
        return f"({code(value)}, ...)" if name == "epsilon_1" else f"(..., {code(value)})"
    if (argument, framework) in _SHARES and value is not UNKNOWN and value:
        return f"{code(value)} * {_SHARES[argument, framework]}"
    if name == "ignore_index" and framework == "torch" and value is None:
        return "-100"
    return code(value)


def cls_of(op: str, framework: str, attrs: Mapping[str, Any] | None = None) -> str:
    """The class that stands for a form in a framework; "" where it has none."""
    a = {**(FORMS[op].attrs if op in FORMS else {}), **(attrs or {})}
    if framework == "torch":
        if op == "CrossEntropy" and not a["from_logits"]:
            return "nn.NLLLoss"
        if op == "BinaryCrossEntropy" and not a["from_logits"]:
            return "nn.BCELoss"
        if op == "Adam" and a["decoupled"] and a["weight_decay"]:
            return "torch.optim.AdamW"
    elif op == "CrossEntropy" and a["label_smoothing"]:
        return "keras.losses.CategoricalCrossentropy"
    elif op == "Accuracy" and a["kind"] != "sparse":
        return f"keras.metrics.{str(a['kind']).title()}Accuracy"
    return _CLASSES.get(op, ("", "", ""))[2 if framework == "keras" else 1]


def own_class(cause: Cause, attrs: Mapping[str, Any] | None = None) -> str:
    """The candidate's class with its module, where it is one of the framework; else the one for its form."""
    at = 2 if cause.framework == "keras" else 1
    also = {name for name in _ALSO if name.startswith("keras.") == (at == 2)}
    names = {name.rsplit(".", 1)[-1]: name for name in {row[at] for row in _CLASSES.values()} | also if name}
    own = names.get(cause.candidate_cls, "") if cause.candidate_cls[:1].isupper() else ""
    return own or cls_of(cause.op, cause.framework, attrs)


def setting(cause: Cause, name: str = "", value: Any = None) -> str:
    """``keras.optimizers.Adam(epsilon=1e-08)``: the call with the reference's value; what to do where no argument takes
    it."""
    name = name or cause.name
    given = sides(cause, name)[1] if value is None else value
    return write(cause, torch=_set(cause, name, given, "torch"), keras=_set(cause, name, given, "keras"))


def _set(cause: Cause, name: str, value: Any, framework: str) -> str:
    # the class must take the argument, even where its value is the one that changes nothing
    taken, cls = argument(cause.op, name, framework), own_class(cause, {name: value or 1})
    if framework != cause.framework:  # neither torch nor Keras: both are written
        cls = cls_of(cause.op, framework, {name: value or 1})
    if taken and cls:
        more = "..., " if framework == "torch" else ""
        return f"{cls}({more}{taken}={written(name, value, taken, framework)})"
    by_hand = _BY_HAND.get(f"{cause.op}.{name}", _BY_HAND.get(name))
    text = by_hand[1 if framework == "keras" else 0] if by_hand else ""
    if callable(text):
        return text(cause, value)
    return text.replace("{v}", code(value)) or (
        f"{'Keras' if framework == 'keras' else 'torch'} has no argument for it: write the {said(cause.op)} out, "
        f"with {name.replace('_', ' ')} = {code(value)}"
    )


def built(op: str, attrs: Mapping[str, Any] | None, framework: str) -> str:
    """The call that makes a form in a framework, with all settings that are given and that an argument takes."""
    a, cls = dict(attrs or {}), cls_of(op, framework, attrs)
    if not cls:
        full = {**(FORMS[op].attrs if op in FORMS else {}), **a}
        text = _FORMULAS.get(op, f"{said(op)}, written by hand")
        for name, value in full.items():
            text = text.replace("{" + name + "}", code(value).strip("'") if value is not None else "...")
        return text
    made: dict[str, str] = {}
    for name, value in a.items():
        taken = argument(op, name, framework)
        if not taken or value is None or (not value and name not in ("learning_rate", "initial")):
            continue
        if name == "reduction":
            value = value if framework == "torch" else {"sum": "sum", "sum_of_means": "sum"}.get(str(value))
            if value in (None, "mean"):
                continue
        made[taken] = written(name, value, taken, framework)
    if "betas" in made:
        made["betas"] = f"({code(a.get('beta_1', 0.9))}, {code(a.get('beta_2', 0.999))})"
    if framework == "keras" and op in ("CrossEntropy", "BinaryCrossEntropy", "FocalBinary"):
        made["from_logits"] = str(bool(a.get("from_logits", True)))
    first = {"optimizer": "parameters", "schedule": "optimizer", "clip": "parameters"}.get(FORMS[op].family, "")
    listed = [first] if first and framework == "torch" else []
    return f"{cls}({', '.join([*listed, *(f'{n}={v}' for n, v in made.items())])})"


def whole(cause: Cause) -> str:
    """The reference's form in the candidate's framework."""
    attrs = cause.reference if isinstance(cause.reference, dict) else {}
    return write(cause, torch=built(cause.op, attrs, "torch"), keras=built(cause.op, attrs, "keras"))


def only(cause: Cause) -> str:
    """Which weights it concerns, where not all."""
    weights = cause.detail.get("weights")
    if not weights:
        return ""
    first = ", ".join(str(w) for w in weights[:3])
    many = f"{len(weights)} of the weights" if len(weights) > 1 else "one of the weights"
    return f" It concerns {many} ({first}{', ...' if len(weights) > 3 else ''})."


def times(cause: Cause, value: Any) -> str:
    """By what to multiply the candidate's loss so that its factor is the reference's."""
    own = sides(cause, "factor")[0]
    known = isinstance(own, int | float) and own and isinstance(value, int | float)
    return f"multiply the loss by {number(value / own) if known else 'the factor of the reference'}"


def _plus(cause: Cause, value: Any) -> str:
    own = sides(cause, "offset")[0]
    known = isinstance(own, int | float) and isinstance(value, int | float)
    return f"add {number(value - own) if known else 'the difference'} to the loss"


def _logs(cause: Cause, value: Any) -> str:
    how, own = "exp" if value else "log", own_class(cause)
    return write(cause, torch=f"{own}()(torch.{how}(out), y)", keras=f"{own}()(y, keras.ops.{how}(out))")


def _on_logits(cause: Cause, value: Any) -> str:
    cut = f"probabilities are cut differently (the reference: {cause.name}={code(value)})"
    torch = "nn.BCEWithLogitsLoss()" if cause.op == "BinaryCrossEntropy" else "nn.CrossEntropyLoss()"
    return write(cause, torch=f"{torch} on logits, on both sides: {cut}",
                 keras=f"{own_class(cause)}(from_logits=True) on logits, on both sides: {cut}")  # fmt: skip


#: attribute -> what to write in (torch, Keras) where no argument takes it; {v} is the reference's value
_BY_HAND: dict[str, tuple[str | Callable[[Cause, Any], str], str | Callable[[Cause, Any], str]]] = {
    "dampening": ("", "keras.optimizers.SGD has no dampening: give the reference dampening=0, or update by hand with "
                  "v = momentum * v + (1 - {v}) * g from the second step on"),
    "rate_decay": ("", "learning_rate=keras.optimizers.schedules.InverseTimeDecay(lr, decay_steps=1, decay_rate={v})"),
    "momentum_decay": ("", "keras.optimizers.Nadam has 1.0 built in: give the reference momentum_decay=1.0, or write "
                       "mu = beta_1 * (1 - 0.5 * 0.96 ** (t * {v}))"),
    "relative_step": ("torch.optim.Adafactor always takes min(lr, 1 / sqrt(t)): give the reference relative_step=True "
                      "(it has {v})", ""),
    "sign": ("multiply the loss by -1, so that its sign is {v}",) * 2,
    "offset": (_plus, _plus),
    "factor": (times, times),
    "axis": ("the class axis is 1 in torch: out.movedim({v}, 1)", "out moved so that the classes are its last axis: "
             "keras.ops.moveaxis(out, {v}, -1)"),
    "label_smoothing": ("smooth the targets before the loss: y * (1 - {v}) + {v} / 2", ""),
    "clamp": (_on_logits, _on_logits),
    "renormalise": (_on_logits, _on_logits),
    "epsilon": (_on_logits, _on_logits),
    "from_logs": (_logs, _logs),
    "log_input": (_logs, _logs),
    "log_target": ("", lambda cause, value: f"{own_class(cause)}()(keras.ops.{'exp' if value else 'log'}(y), out)"),
    "balanced": ("torchvision.ops.sigmoid_focal_loss(..., alpha=-1) balances nothing, any other alpha does; the "
                 "reference has apply_class_balancing={v}", ""),
    "zero_for_right": ("write the hinge out: the right class counts as 0 among the wrong ones: {v}",) * 2,
    "beta": ("", "lambda y, out: keras.losses.Huber(delta={v})(y, out) / {v}"),
    "Poisson.epsilon": ("", "keras.ops.mean(out - y * keras.ops.log(out + {v}))"),
    "m_mul": ("CosineAnnealingWarmRestarts keeps the height of each period: LambdaLR with the peak times {v} at each "
              "restart", ""),
    "cycle": ("LambdaLR with the length of the schedule doubled at its end (cycle={v})", ""),
    "Polynomial.end": ("LambdaLR: PolynomialLR always ends at 0, the reference at {v} of its first rate", ""),
    "rate": ("torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + {v} * t / steps))", ""),
    "warmup_steps": ("torch.optim.lr_scheduler.SequentialLR of LinearLR(optimizer, total_iters={v}) and the schedule",
                     ""),
    "warmup_from": ("torch.optim.lr_scheduler.LinearLR(..., start_factor={v})",
                    "initial_learning_rate={v} * warmup_target"),
    "factors": ("MultiStepLR multiplies by one gamma at each milestone; LambdaLR for the shares {v}",
                "values=[lr * share for share in {v}] in PiecewiseConstantDecay"),
    "k": ("(out.topk({v}, -1).indices == y[:, None]).any(-1).float().mean()", ""),
    "average": ("sklearn.metrics.f1_score(y, predicted, average={v})", ""),
    "threshold": ("out > {v}", ""),
}  # fmt: skip


#: reduction -> in words
REDUCTIONS = {
    "mean": "the mean over all elements", "sum": "the sum over all elements", "none": "no reduction, and so the sum",
    "sum_of_means": "the sum of means over the last axis", "batchmean": "the sum divided by the batch size",
    "mean_of_sums": "the mean of sums over the last axis",
}  # fmt: skip
_MEAN, _SUM = "{C}(reduction='sum_over_batch_size')", "{C}(reduction='sum')"
_EACH, _ALL = "lambda y, out: {C}()(y, out)", "lambda y, out: {C}(reduction='sum')(y, out)"
#: the same in Keras ({C}: the class). Losses of single elements take the mean over the last axis first, the divergence
#: the sum, the others have one value an item
_KERAS_ELEMENTS = {
    "mean": _MEAN, "sum_of_means": _SUM, "sum": f"{_ALL} * out.shape[-1]", "none": f"{_ALL} * out.shape[-1]",
    "mean_of_sums": f"{_EACH} * out.shape[-1]", "batchmean": f"{_EACH} * math.prod(out.shape[1:])",
}  # fmt: skip
_KERAS_ITEMS = {
    "mean": _MEAN, "sum": _SUM, "none": _SUM, "sum_of_means": f"{_ALL} / out.shape[1]",
    "mean_of_sums": f"{_EACH} * out.shape[1]", "batchmean": f"{_ALL} / len(y)",
}  # fmt: skip
_KERAS_DIVERGENCE = {
    "mean_of_sums": _MEAN, "sum": _SUM, "none": _SUM, "mean": f"{_EACH} / out.shape[-1]",
    "sum_of_means": f"{_ALL} / out.shape[-1]", "batchmean": f"{_ALL} / len(y)",
}  # fmt: skip
_BY_ITEM = {"CrossEntropy", "CosineLoss", "CategoricalHinge"}


def reduced(cause: Cause, wanted: str) -> str:
    """The candidate's loss with another reduction."""
    own = own_class(cause) or said(cause.op)
    torch = {"sum_of_means": f"{own}(..., reduction='none')(out, y).mean(-1).sum()",
             "mean_of_sums": f"{own}(..., reduction='none')(out, y).sum(-1).mean()",
             "batchmean": f"{own}(..., reduction='sum')(out, y) / len(out)"}  # fmt: skip
    if cause.op == "KLDiv":
        torch["batchmean"] = f"{own}(..., reduction='batchmean')"
    table = _KERAS_DIVERGENCE if cause.op == "KLDiv" else _KERAS_ITEMS if cause.op in _BY_ITEM else _KERAS_ELEMENTS
    return write(
        cause,
        torch=torch.get(wanted, f"{own}(..., reduction='{wanted}')"),
        keras=table[wanted].replace("{C}", own),
    )
