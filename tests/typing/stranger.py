"""The public API as a user of the wheel writes it: type-checked, never run."""

from __future__ import annotations

from typing import assert_type

import surepipe

assert_type(surepipe.__version__, str)
