"""Certificates for trying out the two nodes: ``python examples/deploy/certificates.py FOLDER``.

Each is for the name of its service and for 127.0.0.1. The keys lie unprotected in the folder, and that of the
authority is thrown away. For a real deployment take the authority that you have.
"""

from __future__ import annotations

import sys
from pathlib import Path

from surepipe.testing.certificates import Authority

NODES = ("shop", "warehouse")


def make(folder: Path) -> None:
    """Write ``ca.pem``, and for each node its certificate and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority(folder, "deployment")
    authority.ca.rename(folder / "ca.pem")
    for node in NODES:
        authority.sign(node, hosts=(node,))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
