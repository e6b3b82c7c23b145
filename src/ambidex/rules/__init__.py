"""Rules: every known cause with its page, its words and its fix, one module a family.

``best(cause)`` gives the rule that knows a cause best, ``find(code)`` the rule of a code, ``all_rules()`` all of them,
``variants(call)`` the other ways to compute a call that rules know of, ``page(rule)`` a rule's page as Markdown.
"""

from __future__ import annotations

from ambidex.rules import (
    activation,
    attention,
    conv,
    embedding,
    gradient,
    loss,
    masks,
    metric,
    norm,
    optimizer,
    parameters,
    pool,
    precision,
    resize,
    rnn,
    schedule,
    shape,
    structure,
    training,
    weights,
)
from ambidex.rules.pages import page
from ambidex.rules.registry import all_rules, best, find, rule, variants

__all__ = ["all_rules", "best", "find", "page", "rule", "variants"]

#: importing a family registers its rules
_FAMILIES = (
    activation,
    attention,
    conv,
    embedding,
    gradient,
    loss,
    masks,
    metric,
    norm,
    optimizer,
    parameters,
    pool,
    precision,
    resize,
    rnn,
    schedule,
    shape,
    structure,
    training,
    weights,
)
