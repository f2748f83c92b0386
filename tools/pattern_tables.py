"""The tables of patterns.md, computed from the declarations, the algebra, and the options models."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

from surepipe.core.claims import (
    DELIVERY_NAMES,
    MEANING,
    ORDER_NAMES,
    ROUTE,
    WORD_MEANING,
    WORDS,
    Atom,
    Claim,
    Fault,
    Faults,
    atoms_text,
    faults_text,
    in_order,
)
from surepipe.core.effects import NOTICE_MEANING
from surepipe.errors import CompositionError
from surepipe.guarantees import check_claim, derive, derive_chain, refusals, warnings
from surepipe.guarantees.derivation import Derived, DerivedChain
from surepipe.guarantees.explain import HOST_WAITS
from surepipe.guarantees.hops import Hop, composition
from surepipe.pipes.catalogue import DECLARATIONS, KINDS
from surepipe.pipes.channel import ChannelOptions
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.stack.counters import FRAME_MEANING, MESSAGE_MEANING
from tools.pattern_hops import (
    BOOK,
    BOOKS,
    CHANNELS,
    NEEDS,
    PATTERNS,
    SYNCED,
    WORKED,
    Worked,
    committed,
    hop,
)

YES, NO, NEVER = "yes", "**no**", "–"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines
    )


def names(claim: Claim) -> str:
    """The two names of a claim."""
    return f"{claim.delivery}, {claim.order}"


# What to choose.


def needs() -> str:
    """What somebody needs, the stack that serves it, and what the algebra derives for it."""
    rows = [
        [
            need.need,
            f"[`{_layers(need.hop)}`](#{need.link})"
            + (f" with {need.setup}" if need.setup else ""),
            f"{names(derive(need.hop).headline)} over {_over(need.hop)}",
            need.cost,
        ]
        for need in NEEDS
    ]
    return table(["you need", "take", "and get", "it costs"], rows)


def _layers(subject: Hop) -> str:
    return " > ".join(layer.kind for layer in subject.layers)


def _over(subject: Hop) -> str:
    if not subject.route.forward:
        return "a route without faults"
    return "a lossy one-way route" if subject.route.one_way else "a lossy route"


# Words.

_ATOM_MEANING: Mapping[Atom, str] = {
    Atom.NO_LOSS: "every accepted message is settled in the end",
    Atom.NO_DUPLICATE: "no message is settled twice",
    Atom.MONOTONIC: "no message is settled after a later one",
    Atom.GAP_FREE: "a message is first settled only after every earlier one was",
}


def atoms() -> str:
    """The four atoms."""
    return table(["atom", "holds when"], [[f"**{a}**", _ATOM_MEANING[a]] for a in Atom])


def claims() -> str:
    """The names of claims, as the atoms they stand for."""
    delivery = [[f"`{n}`", _made_of(Claim.named(delivery=n))] for n in DELIVERY_NAMES]
    order = [[f"`{n}`", _made_of(Claim.named(order=n))] for n in ORDER_NAMES]
    return "\n\n".join([table(["delivery", "atoms"], delivery), table(["order", "atoms"], order)])


def _made_of(claim: Claim) -> str:
    return atoms_text(claim.atoms) or "none"


def faults() -> str:
    """Everything that may go wrong: what happens to people, and the faults behind that."""
    words = [[f"`{word}`", WORD_MEANING[word], _behind(word)] for word in WORDS]
    details = [[f"`{f}`", MEANING[f]] for f in Fault if f.value not in WORDS]
    return "\n\n".join(
        [
            table(["word", "what happens to you", "the faults behind it"], words),
            table(["fault behind a word", "what happens"], details),
        ]
    )


def _behind(word: str) -> str:
    return ", ".join(f"`{f}`" for f in in_order(WORDS[word]) if f.value != word)


# One pattern.


def requires(kind: str) -> str:
    """What each way to set a pattern up needs of what carries it."""
    rows = [row for row in DECLARATIONS if row.kind == kind]
    merged: dict[str, list[str]] = {}
    for row in rows:
        merged.setdefault(row.requires, []).append(row.when or "by default")
    texts = [f"**{needs_}** (`{when[0]}`)" for needs_, when in merged.items()]
    text = f"It requires {', or '.join(texts) if texts[1:] else f'**{rows[0].requires}**'}."
    outermost = PATTERNS[kind][0].layers[0]
    if outermost.confirms:
        return text
    return f"{text} Over a route where nobody sends again it rests on its host: {HOST_WAITS}."


def promises(kind: str) -> str:
    """The four atoms of a pattern over some routes, and what its headline doesn't survive."""
    columns = [_promise(subject) for subject in PATTERNS[kind]]
    head = ["", *(f"`{_composition(subject)}`" for subject in PATTERNS[kind])]
    labels = [*(str(atom) for atom in Atom), "in words", "does not survive"]
    rows = [[label, *cells] for label, *cells in zip(labels, *columns, strict=True)]
    return table(head, rows)


def _composition(subject: Hop) -> str:
    return composition(subject).replace("(start=earliest)", "").replace("=", ": ")


def _promise(subject: Hop) -> list[str]:
    if found := refusals(subject):
        return [NEVER] * len(Atom) + [f"refused: `{found[0].code}`", NEVER]
    derived = derive(subject)
    cells = [_under(derived.guarantee.tolerated(atom), derived.exhibits) for atom in Atom]
    lacks = faults_text(frozenset(derived.headline.lacks()))
    return [*cells, names(derived.headline), lacks or "nothing"]


def _under(tolerated: Faults | None, exhibits: Faults) -> str:
    """Whether an atom holds over a route, and if not always, under which of its faults."""
    if tolerated is None:
        return "no"
    if exhibits <= tolerated:
        return YES
    left = ", ".join(fault.removeprefix("route-") for fault in in_order(tolerated & exhibits))
    return f"only under {left}" if left else "no"


_SETUPS: tuple[tuple[Fault, str], ...] = (
    (Fault.SENDER_CRASH, "nothing stored"),
    (Fault.SENDER_CRASH, "a journal"),
    (Fault.RECEIVER_CRASH, "`handed`"),
    (Fault.RECEIVER_CRASH, "`processed` (the default)"),
    (Fault.RECEIVER_CRASH, "`processed`, stored state"),
    (Fault.RECEIVER_CRASH, "`before`, stored state"),
    (Fault.RECEIVER_CRASH, "`committed`, state and sink in one store"),
    (Fault.POWER_LOSS, "a journal and `committed`, all in one synced store"),
)
_WITHOUT_CURSOR = "a journal in a synced store"


def _set_up(subject: Hop, setup: str) -> Hop:
    if setup in ("a journal", _WITHOUT_CURSOR):
        return replace(subject, journal=SYNCED)
    if setup.startswith("a journal and"):
        return committed(subject)
    word = setup.strip("`").split("`")[0]
    if word not in list(Boundary):
        return subject
    state = SYNCED if "state" in setup else None
    sink = SYNCED if "sink" in setup else None
    return replace(subject, boundary=Boundary(word), receiver_state=state, sink=sink)


def crashes(kind: str) -> str:
    """Which atoms outlive the crash of an end, for each way to set the ends up."""
    subject = PATTERNS[kind][-1]
    rows: list[list[str]] = []
    for fault, usual in _SETUPS:
        setup = usual
        if fault is Fault.POWER_LOSS and not subject.layers[0].is_cursor:
            setup = _WITHOUT_CURSOR
        cells = _after(_set_up(subject, setup), fault)
        if "stored state" in setup and rows and rows[-1][2:] == cells:
            continue  # storing the state changed nothing
        rows.append([_EVENT[fault], setup, *cells])
    head = ["what happens", "set up with", *(str(atom) for atom in Atom)]
    return f"Over `{_composition(subject)}`:\n\n{table(head, rows)}"


_EVENT: Mapping[Fault, str] = {
    Fault.SENDER_CRASH: "the sender crashes",
    Fault.RECEIVER_CRASH: "the receiver crashes",
    Fault.POWER_LOSS: "power fails",
}


def _after(subject: Hop, fault: Fault) -> list[str]:
    if found := refusals(subject):
        return [f"refused: `{found[0].code}`", *[NEVER] * (len(Atom) - 1)]
    derived = derive(subject)

    def cell(atom: Atom) -> str:
        if not derived.guarantee.holds(atom, derived.exhibits):
            return NEVER
        return YES if derived.guarantee.holds(atom, derived.exhibits | {fault}) else NO

    return [cell(atom) for atom in Atom]


# Books.


def books() -> str:
    """The four atoms of one queue of a book, for effects of its handlers anywhere, and what they don't survive."""
    columns = [_of_one_queue(subject) for subject in BOOKS.values()]
    labels = [*(str(atom) for atom in Atom), "in words", "across queues", "does not survive"]
    rows = [[label, *cells] for label, *cells in zip(labels, *columns, strict=True)]
    return table(["of one queue", *BOOKS], rows)


def _of_one_queue(subject: Hop) -> list[str]:
    derived = derive(subject)
    one = derived.of_one_key
    cells = [_under(one.guarantee.tolerated(atom), one.exhibits) for atom in Atom]
    lacks = faults_text(frozenset(one.headline.lacks()))
    return [*cells, names(one.headline), derived.headline.order, lacks or "nothing"]


def book_crashes() -> str:
    """Which atoms of one queue outlive what happens to each party."""
    events = {
        Fault.SENDER_CRASH: "a process that enqueues crashes",
        Fault.SENDER_ZOMBIE: "one is replaced, and goes on",
        Fault.RECEIVER_CRASH: "a process that serves crashes",
        Fault.RECEIVER_ZOMBIE: "one is replaced, and goes on",
        Fault.HANDLER_FAILURE: "a handler raises",
        Fault.STORE_OUTAGE: "the store does not answer",
        Fault.POWER_LOSS: "power fails, with a synced store",
        Fault.CLOCK_STEP: "a clock jumps",
    }
    one = derive(BOOK).of_one_key
    rows = [
        [what, *(YES if one.guarantee.holds(a, one.exhibits | {fault}) else NO for a in Atom)]
        for fault, what in events.items()
    ]
    return table(["what happens", *(str(atom) for atom in Atom)], rows)


# Stacks.


def algebra() -> str:
    """What each kind makes of its carrier: the declarations as they are."""
    head = ["pipe", "set to", "requires", *(str(atom) for atom in Atom)]
    rows = [[f"`{kind}`", when, *rest] for kind, when, *rest in (row.row() for row in DECLARATIONS)]
    return table(head, rows)


def worked() -> str:
    """The worked compositions, with the verdict that the algebra gives today."""
    rows = [[item.number, item.text, _verdict(item)] for item in WORKED]
    return table(["", "composition", "verdict"], rows)


def _verdict(item: Worked) -> str:
    try:
        subject = item.subject
        derived = derive(subject) if isinstance(subject, Hop) else derive_chain(subject)
    except CompositionError as refused:
        return "<br>".join(f"refused: {finding}" for finding in refused.findings)
    if item.expect is not None and (unmet := check_claim(derived, item.expect)):
        return "<br>".join(f"refused: {finding}" for finding in unmet)
    if item.only is not None:
        return _one_fault(derived, item.only)
    return "<br>".join([_accepted(derived), *_warned(derived)])


def _accepted(derived: Derived | DerivedChain) -> str:
    lacks = faults_text(frozenset(derived.headline.lacks())) or "nothing"
    return f"**{names(derived.headline)}**; does not survive {lacks}"


def _warned(derived: Derived | DerivedChain) -> Iterator[str]:
    if isinstance(derived, Derived):
        yield from (f"warning: {finding}" for finding in warnings(derived))


def _one_fault(derived: Derived | DerivedChain, fault: Fault) -> str:
    broken = [atom for atom in Atom if not derived.guarantee.holds(atom, frozenset({fault}))]
    return f"{fault} breaks {atoms_text(broken) or 'nothing'}"


# Channels.


def channels() -> str:
    """What both directions of some channels promise, each with the other for its way back."""
    rows: list[list[str]] = []
    for there, back in CHANNELS:
        halves = [
            replace(there, channel_back=back.layers),
            replace(back, channel_back=there.layers),
        ]
        rows.append([*(f"`{_stack(half)}`" for half in halves), *map(_half, halves)])
    head = ["forward", "back", "the way there", "the way back"]
    return table(head, rows)


def _stack(subject: Hop) -> str:
    return _composition(subject).rpartition(" / ")[0]


def _half(subject: Hop) -> str:
    ours = [finding for finding in refusals(subject) if finding.pipe == subject.name]
    if ours:
        return f"refused: {', '.join(str(finding.code) for finding in ours)}"
    return names(derive(subject).headline) if not refusals(subject) else "as alone"


def channel_options() -> str:
    """How a channel opens and when it forgets; the meanings stand below the options in the source."""
    meanings = _attribute_docs(ChannelOptions)
    rows = [
        [f"`{f.name}`", _default(f.name, f.default), meanings[f.name]]
        for f in fields(ChannelOptions)
    ]
    return table(["option", "default", "meaning"], rows)


# Boundaries.

_SETTLED: Mapping[Boundary, str] = {
    Boundary.HANDED: "it is in the inbox of whoever comes next",
    Boundary.BEFORE: "its number is stored; then it is delivered",
    Boundary.PROCESSED: "the handler has returned",
    Boundary.COMMITTED: "effect and number are stored in one transaction",
}


def boundaries() -> str:
    """When a message is settled, and what a crash does to it then."""
    rows = [
        [f"`{b}`", _SETTLED[b], _breach(b, Atom.NO_LOSS), _breach(b, Atom.NO_DUPLICATE), _stores(b)]
        for b in Boundary
    ]
    head = [
        "boundary",
        "a message is settled when",
        "a crash may lose it",
        "may repeat it",
        "needs",
    ]
    return table(head, rows)


def _at(boundary: Boundary) -> Hop:
    plain = hop("reliable")
    if boundary in (Boundary.HANDED, Boundary.PROCESSED):
        return replace(plain, boundary=boundary)
    return replace(plain, boundary=boundary, receiver_state=SYNCED, sink=SYNCED)


def _breach(boundary: Boundary, atom: Atom) -> str:
    holds = derive(_at(boundary)).guarantee.holds(atom, ROUTE | {Fault.RECEIVER_CRASH})
    return "no" if holds else "yes"


def _stores(boundary: Boundary) -> str:
    """What is refused without: tried by leaving it out."""
    wanted = {
        "a pipe with a cursor outermost": replace(_at(boundary), layers=hop("resend").layers),
        "a store for the receiver's state": replace(_at(boundary), receiver_state=None),
        "the sink in that store": replace(_at(boundary), sink=None),
    }
    needed = [words for words, without in wanted.items() if refusals(without)]
    return "; ".join(needed) or "nothing"


# Parameters, counters, notices.

_GROUPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("all", frozenset(KINDS)),
    ("retry pipes", frozenset(k for k, m in KINDS.items() if m.is_retry)),
    ("index pipes", frozenset(k for k, m in KINDS.items() if m.is_index)),
)


def parameters() -> str:
    """Every option of every kind, with its default; options of one name stand together."""
    found: dict[str, dict[tuple[str, str], list[str]]] = {}
    for kind, model in KINDS.items():
        for name, info in model.model_fields.items():
            key = (_default(name, info.default), info.description or "")
            found.setdefault(name, {}).setdefault(key, []).append(kind)
    rows = [
        [f"`{name}`", default, meaning, _kinds(kinds)]
        for name, variants in found.items()
        for (default, meaning), kinds in variants.items()
    ]
    return table(["option", "default", "meaning", "of"], rows)


_MEBI, _KIBI = 1024 * 1024, 1024


def _default(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and name.endswith("_bytes"):
        return f"{value // _MEBI} MiB" if value % _MEBI == 0 else f"{value // _KIBI} KiB"
    if isinstance(value, float):
        return f"{value:g}"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _kinds(kinds: Sequence[str]) -> str:
    """The kinds, with the name of a group in place of its members."""
    left, words_ = set(kinds), list[str]()
    for name, members in _GROUPS:
        if members <= left:
            words_.append(name)
            left -= members
    return ", ".join([*words_, *(f"`{kind}`" for kind in kinds if kind in left)])


def boundary_options() -> str:
    """The options of the receiver's boundary; their meanings stand below them in the source."""
    meanings = _attribute_docs(BoundaryOptions)
    rows = [
        [f"`{f.name}`", _default(f.name, f.default), meanings[f.name]]
        for f in fields(BoundaryOptions)
        if f.name not in ("durable", "dead_letters")  # told by the stores that are named
    ]
    return table(["option", "default", "meaning"], rows)


def _attribute_docs(owner: type) -> dict[str, str]:
    """The docstrings of a class's attributes, which only the source has."""
    (body,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for former, node in zip(body.body, body.body[1:], strict=False):
        if isinstance(former, ast.AnnAssign) and isinstance(former.target, ast.Name):
            match node:
                case ast.Expr(ast.Constant(str(text))):
                    found[former.target.id] = text
                case _:
                    pass
    return found


def counters() -> str:
    """Everything a machine counts."""
    heads = ("messages", MESSAGE_MEANING), ("frames that were ignored", FRAME_MEANING)
    parts = [
        table([what, "counts"], [[f"`{name}`", text] for name, text in meanings.items()])
        for what, meanings in heads
    ]
    return "\n\n".join(parts)


def notices() -> str:
    """Everything a machine tells."""
    rows = [[f"`{kind}`", text] for kind, text in NOTICE_MEANING.items()]
    return table(["notice", "tells"], rows)
