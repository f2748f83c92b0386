"""docs/rules has every rule that is cited, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from surepipe.audit.properties.base import NAMES
from surepipe.simulation.faults import BY_ID

ROOT = Path(__file__).parents[2]
RULES = ROOT / "docs" / "rules"
README = (RULES / "README.md").read_text(encoding="utf-8")
CODE = ("src", "tests", "tools", "benchmarks", "examples")
TEXTS = ("docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "patterns.md")
KINDS = frozenset({".py", ".lua", ".pml", ".md", ".toml", ".yaml", ".sql"})

ID = r"(?:[A-Z]{1,4}-\d+|8\.[1-9])"
RULE = re.compile(rf'^- <a id="([^"]+)"></a>\*\*({ID})\*\* (.+)')
CITED = re.compile(
    r"(?<![\w.-])"
    r"(?:(?P<page>[Pp]ipes|storage|simulation|spark|message-queue|ibc|rmq) )?"
    r"(?:(?P<letters>[A-Z]{1,4})-(?P<first>\d+)(?:(?: to |\.\.)(?P=letters)-(?P<last>\d+))?(?![\w])"
    r'|(?:(?<=[Pp]ipes )|(?<="""))(?P<pipe>8\.[1-9])(?!\w))'
)
NO_RULES = frozenset({"UTF", "CRC", "SHA", "HTTP", "ISO", "RFC", "ICS"})
"""Words of others that are written like ids."""


@dataclass(frozen=True)
class Citation:
    """An id, and the page on which the text says that it stands (empty: not said)."""

    id: str
    page: str = ""


def citations(text: str) -> Iterator[Citation]:
    """Every rule that the text cites; of a range each one."""
    for found in CITED.finditer(text):
        page, letters = (found["page"] or "").lower(), found["letters"]
        if found["pipe"]:
            yield Citation(found["pipe"], page)
        elif letters not in NO_RULES:
            first = int(found["first"])
            for number in range(first, int(found["last"] or first) + 1):
                yield Citation(f"{letters}-{number}", page)


def cited_in(*places: str) -> dict[Citation, set[str]]:
    """Citation to the files that have it; the pages of the rules themselves and this test are no witnesses."""
    found: dict[Citation, set[str]] = {}
    for place in places:
        path = ROOT / place
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.suffix not in KINDS or RULES in file.parents or file == Path(__file__):
                continue
            for citation in citations(file.read_text(encoding="utf-8")):
                found.setdefault(citation, set()).add(str(file.relative_to(ROOT)))
    return found


def rules() -> dict[str, str]:
    """Id to the name of its page. Each id stands once, under an anchor of its own name."""
    found: dict[str, str] = {}
    for page in sorted(RULES.glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if rule := RULE.match(line):
                anchor, id_, text = rule.groups()
                assert anchor == id_.lower()
                assert id_ not in found
                assert text.strip()
                found[id_] = page.stem
    return found


def unknown(cited: dict[Citation, set[str]], known: dict[str, str]) -> dict[str, list[str]]:
    """What is cited and stands nowhere, or stands on another page than the text says, with the files."""
    return {
        f"{citation.page} {citation.id}".strip(): sorted(files)
        for citation, files in cited.items()
        if known.get(citation.id) is None or citation.page not in ("", known[citation.id])
    }


def test_every_rule_that_is_cited_stands_on_its_page() -> None:
    """In code, tests and documents; a page that is named must be the one."""
    assert unknown(cited_in(*CODE, *TEXTS), rules()) == {}


def test_every_rule_on_a_page_is_cited_by_code_or_a_test() -> None:
    """A rule that nothing shows is a wish."""
    known = rules()
    assert len(known) > 250
    assert set(known) - {citation.id for citation in cited_in(*CODE)} == set()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f'"""Sent before it is stored (P-{99})."""', ["P-99"]),
        (f"# spark P-{6}, and then", ["spark P-6"]),
        (f"(pipes P-{6}, ZZ-{1}; QI-{2})", ["ZZ-1"]),
        (f"T-{10} to T-{12}", ["T-12"]),
        (f'"""8.{9}: no such pipe."""', ["8.9"]),
        (f"pipes 8.{7}, S-{9}, UTF-8, PL-{5}-sender, a float 8.{9}, sha-{1}", []),
    ],
)
def test_a_planted_id_is_noticed_if_it_is_wrong(text: str, wrong: list[str]) -> None:
    """Ids without a rule, at the end of a range too, and ids under the name of another page."""
    assert list(unknown({one: {"here"} for one in citations(text)}, rules())) == wrong


def test_a_rule_that_nothing_cites_is_noticed() -> None:
    """Planted is a page's line that no text speaks of."""
    line = f'- <a id="p-{99}"></a>**P-{99}** What nobody shows.'
    rule = RULE.match(line)
    assert rule is not None
    assert rule[2] not in {citation.id for citation in cited_in(*CODE)}


def test_letters_belong_to_one_page() -> None:
    """So an id needs no name of a page; the table of the README says the same."""
    pages: dict[str, set[str]] = {}
    for id_, page in rules().items():
        pages.setdefault(id_.split("-")[0].split(".")[0], set()).add(page)
    assert [letters for letters, found in pages.items() if len(found) > 1] == []
    table = re.findall(r"^\| ([^|]+) \| \[(.+)\.md\]", README, re.MULTILINE)
    told = {word: page for cell, page in table for word in re.findall(r"\b[A-Z]+\b", cell)}
    assert told == {letters: page for letters, (page,) in pages.items() if letters.isalpha()}


def test_properties_and_faults_have_the_names_of_the_code() -> None:
    """They look like ids of rules; the README lists them."""
    properties = re.findall(r"^\| (P\d+g?) \| ([^|]+) \|", README, re.MULTILINE)
    assert dict(properties) == NAMES
    faults = re.findall(r"\| (F\d+[a-z]?) \| `([^`]+)`", README)
    assert dict(faults) == {id_: kind.kind for id_, kind in BY_ID.items()}


def test_links_lead_somewhere() -> None:
    """From the pages to decisions and to each other."""
    for page in RULES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
