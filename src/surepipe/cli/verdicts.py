"""What ``check`` found, as lines for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from surepipe.cli.output import Exit, Line, Piece, line
from surepipe.core.claims import WORDS, Claim, Fault, delivers_told, faults_told, word_of
from surepipe.guarantees.problems import Finding

if TYPE_CHECKING:
    from surepipe.guarantees.explain import Explanation
    from surepipe.pipelines import Assessment, Document, PipelineErrors, Verdict


_COLUMN = 13


def as_lines(assessment: Assessment, file: str, *, why: bool = False) -> Iterator[Line]:
    """The whole verdict, for people."""
    yield line((assessment.plan.name, "head"), f"  {file}")
    for verdict in assessment.pipes:
        yield line("")
        yield from _verdict(f"pipe {verdict.name}", verdict, assessment.engine, why=why)
    for verdict in assessment.ways:
        yield line("")
        yield from _way(verdict, assessment)
    if assessment.notes:
        yield line("")
        yield from (line(("note  ", "dim"), note) for note in assessment.notes)
    yield line("")
    yield _last(assessment)


def as_problems(assessment: Assessment, document: Document) -> Iterator[str]:
    """What is refused or not met, each once, at its place in the file."""
    yield from dict.fromkeys(_problems(assessment, document))


def _problems(assessment: Assessment, document: Document) -> Iterator[str]:
    from surepipe.pipelines.assessing import path_of

    for verdict in assessment.pipes:
        for finding in verdict.refused:
            yield document.show(path_of(finding), str(finding))
        for finding in verdict.unmet:
            yield document.show(("pipes", verdict.name, "expect"), str(finding))
    for verdict in assessment.ways:
        for finding in (*verdict.refused, *verdict.unmet):
            yield document.show(("expect",), _end_to_end(finding, verdict))
    for text in assessment.engine_refusals:
        yield document.show(("engine",), f"engine spark: {text}")
    for issue in assessment.actor_refusals:
        yield document.show(issue.path, issue.text)


def _end_to_end(finding: Finding, verdict: Verdict) -> str:
    return str(finding).replace(f"pipe {finding.pipe}:", f"{verdict.name}:", 1)


def _verdict(title: str, verdict: Verdict, engine: str, *, why: bool) -> Iterator[Line]:
    explanation = verdict.explanation
    if explanation is None:
        yield line((title, "head"), "  ", ("refused", "bad"))
        for finding in verdict.refused:
            yield line(("x ", "bad"), str(finding), indent=2)
        return
    yield line((title, "head"), f"  {explanation.composition}")
    yield from _promise(explanation, verdict, engine)
    if why:
        for atom in explanation.atoms:
            yield _field("because", str(atom))
    yield from _lacks(explanation)
    for finding in explanation.warnings:
        yield _field("warning", (str(finding), "warn"))
    for note in explanation.notes:
        yield _field("note", note)
    yield from _expectations(verdict)


def _way(verdict: Verdict, assessment: Assessment) -> Iterator[Line]:
    title = line((f"end to end {verdict.name}", "head"), f"  {' -> '.join(verdict.parts)}")
    explanation = verdict.explanation
    if explanation is None:
        yield title
        for finding in verdict.refused:
            yield line(("x ", "bad"), str(finding), indent=2)
        return
    yield title
    yield from _promise(explanation, verdict, assessment.engine)
    one_pipe = _same_as_pipe(explanation, assessment)
    if one_pipe:
        yield _field("not through", f"as pipe {one_pipe}")
    else:
        yield from _lacks(explanation)
    yield from _though(explanation, verdict, assessment)
    yield from _expectations(verdict)


def _though(explanation: Explanation, verdict: Verdict, assessment: Assessment) -> Iterator[Line]:
    """Why a way survives what one of its pipes, by itself, does not."""
    claim = explanation.headline
    pipes = [pipe for pipe in assessment.pipes if pipe.name in verdict.parts]
    for number, pipe in enumerate(pipes):
        if pipe.explanation is None:
            continue
        more = claim.tolerates - pipe.explanation.headline.tolerates
        kept = [one.survives for one in pipe.explanation.atoms if one.atom in claim.atoms]
        weaker = frozenset(f for f in more if all(s is not None and f in s for s in kept))
        promised = pipe.explanation.headline
        if weaker:
            why = f"pipe {pipe.name} promises {delivers_told(promised)}, which does not survive it"
            yield _field(
                "though", faults_told(weaker), f": {why}; what is promised end to end does"
            )
        if more - weaker:
            crash = more - weaker
            why = (
                "what it loses, the pipe before it brings again"
                if number
                else "the end that is meant is another one"
            )
            yield _field("though", faults_told(crash), f": not pipe {pipe.name} by itself; {why}")


def _same_as_pipe(explanation: Explanation, assessment: Assessment) -> str:
    """The pipe that lacks the very same, so that its reasons need not be said again."""
    for pipe in assessment.pipes:
        if pipe.explanation is not None and pipe.explanation.lacks == explanation.lacks:
            return pipe.name
    return ""


def _promise(explanation: Explanation, verdict: Verdict, engine: str) -> Iterator[Line]:
    yield _field("delivers", (verdict.delivers(engine), "good"))
    yield _field("through", faults_told(explanation.headline.tolerates) or "no fault")


def _lacks(explanation: Explanation) -> Iterator[Line]:
    """Faults that it does not survive; those with one reason and one remedy together."""
    groups: dict[tuple[str, str | None], set[Fault]] = {}
    for lack in explanation.lacks:
        groups.setdefault((lack.because, lack.remedy), set()).update(lack.faults)
    for (because, remedy), faults in groups.items():
        yield _field("not through", (faults_told(frozenset(faults)), "warn"), f": {because}")
        if remedy is None:
            yield line("no small change adds it", indent=_COLUMN + 4)
        else:
            yield line(("add  ", "dim"), remedy, indent=_COLUMN + 4)


def _expectations(verdict: Verdict) -> Iterator[Line]:
    for claim in verdict.expected:
        unmet = [finding for finding in verdict.unmet if str(claim) in finding.why]
        yield _field(
            "expected",
            _expected(verdict, claim),
            ": ",
            ("not met", "bad") if unmet else ("held", "good"),
        )
        for finding in unmet:
            yield line(("x ", "bad"), str(finding), indent=_COLUMN + 2)


def _expected(verdict: Verdict, claim: Claim) -> str:
    """As it was asked for: ``exactly-once, absolute per key; tolerates network``."""
    what, tolerates, faults = str(claim).partition("; tolerates")
    per = " per key" if claim in verdict.expected_per_key else ""
    return f"{what}{per}{tolerates}{faults}"


def _field(name: str, *pieces: Piece) -> Line:
    return line((f"{name:<{_COLUMN}}", "dim"), *pieces, indent=2)


def _last(assessment: Assessment) -> Line:
    verdicts = (*assessment.pipes, *assessment.ways)
    if not assessment.usable:
        refused = sum(len(v.refused) for v in verdicts)
        refused += len(assessment.engine_refusals) + len(assessment.actor_refusals)
        return line(("refused", "bad"), f": {refused} {_plural(refused, 'reason')}")
    unmet = sum(len(v.unmet) for v in verdicts)
    if unmet:
        return line(("not met", "bad"), f": {unmet} of what is expected does not hold")
    claims = sum(len(v.expected) for v in verdicts)
    said = (
        f"{claims} {_plural(claims, 'expectation')}"
        if claims
        else "nothing is expected; see expect"
    )
    return line(("held", "good"), f": {said}")


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"


# For machines.


def as_document(assessment: Assessment, document: Document, code: Exit) -> dict[str, object]:
    """The whole verdict as JSON. Keys may be added in later versions, none is renamed."""
    return {
        "file": document.text.name,
        "name": assessment.plan.name,
        "exit": int(code),
        "usable": assessment.usable,
        "held": assessment.held,
        "pipes": [_verdict_as_json(verdict) for verdict in assessment.pipes],
        "ways": [_verdict_as_json(verdict) for verdict in assessment.ways],
        "notes": list(assessment.notes),
        "engine_refusals": [
            *assessment.engine_refusals,
            *(issue.text for issue in assessment.actor_refusals),
        ],
        "errors": [],
    }


def errors_as_json(errors: PipelineErrors) -> dict[str, object]:
    """The same for a file that could not be read."""
    return {
        "file": errors.file.name,
        "name": "",
        "exit": int(Exit.UNUSABLE),
        "usable": False,
        "held": False,
        "pipes": [],
        "ways": [],
        "notes": [],
        "engine_refusals": [],
        "errors": [
            {"line": one.place.line, "column": one.place.column, "text": one.text}
            for one in errors.problems
        ],
    }


def _verdict_as_json(verdict: Verdict) -> dict[str, object]:
    explanation = verdict.explanation
    found: dict[str, object] = {
        "name": verdict.name,
        "parts": list(verdict.parts),
        "held": verdict.held,
        "per_key": None if verdict.per_key is None else _claim_as_json(verdict.per_key),
        "refused": [_finding_as_json(one) for one in verdict.refused],
        "expected": [
            {
                **_claim_as_json(claim),
                "per": "key" if claim in verdict.expected_per_key else "pipe",
            }
            for claim in verdict.expected
        ],
        "unmet": [_finding_as_json(one) for one in verdict.unmet],
    }
    return found if explanation is None else {**found, **_explanation_as_json(explanation)}


def _explanation_as_json(explanation: Explanation) -> dict[str, object]:
    return {
        "composition": explanation.composition,
        **_claim_as_json(explanation.headline),
        "atoms": [
            {
                "atom": one.atom.value,
                "survives": None if one.survives is None else sorted(one.survives),
                "because": one.because,
            }
            for one in explanation.atoms
        ],
        "not_tolerated": [
            {
                "fault": fault.value,
                "word": word_of(fault),
                "atoms": [atom.value for atom in one.atoms],
                "because": one.because,
                "remedy": one.remedy,
            }
            for one in explanation.lacks
            for fault in one.faults
        ],
        "warnings": [_finding_as_json(one) for one in explanation.warnings],
        "notes": list(explanation.notes),
    }


def _claim_as_json(claim: Claim) -> dict[str, object]:
    return {
        "delivery": claim.delivery,
        "order": claim.order,
        "tolerates": sorted(claim.tolerates),
        "through": [word for word, faults in WORDS.items() if faults <= claim.tolerates],
    }


def _finding_as_json(finding: Finding) -> dict[str, object]:
    return {
        "code": finding.code.value,
        "pipe": finding.pipe,
        "layer": finding.layer,
        "why": finding.why,
        "remedies": list(finding.remedies),
        "atoms": [atom.value for atom in finding.atoms],
        "faults": [fault.value for fault in finding.faults],
    }
