"""The tests of surepipe."""

import os

if os.environ.get("CHECKED_BUFFERS"):
    from tests.kit import checked_buffers

    checked_buffers.install()
