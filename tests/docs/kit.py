"""What the tests of pages share."""

from __future__ import annotations

import re

_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs_in(page: str) -> list[str]:
    """The blocks of Python in a page, in their order."""
    return _PYTHON.findall(page)
