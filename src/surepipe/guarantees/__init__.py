"""Guarantees as values, and the algebra that computes them for stacks and chains.

``derive`` says what a hop promises or refuses it with reasons; ``check_claim`` compares that with what somebody
expects; ``explain`` gives the reason for every atom and the remedy for every fault that one lacks.
"""

from __future__ import annotations

from surepipe.guarantees.composing import (
    chain_refusals,
    check_claim,
    derive,
    derive_chain,
    refusals,
    remedy_for_fault,
    require,
    stack_mismatch,
    warnings,
)
from surepipe.guarantees.explain import explain, explain_chain

__all__ = [
    "chain_refusals",
    "check_claim",
    "derive",
    "derive_chain",
    "explain",
    "explain_chain",
    "refusals",
    "remedy_for_fault",
    "require",
    "stack_mismatch",
    "warnings",
]
