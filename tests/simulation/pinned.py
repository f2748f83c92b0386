"""Digests of twenty runs of the counting machines, equal on every Python.

A change of the simulator may change them: run ``digests`` of ``test_replay`` and say in the commit why they did.
"""

from __future__ import annotations

PINNED: tuple[str, ...] = (
    "b41bea46f72f736efd0995976dcfa2d0",
    "6e1bf00b35586427dfc9aaacf03e9672",
    "c924343b94538cb35fe2a3ee6feb4e21",
    "8b783a98ecd13649feb312836f18996d",
    "bee50967d844b00a41b61b1b995bc1f0",
    "280154479b15c1055fb5aafbbd6d85e1",
    "5f4e54014e420077de9a796069a44c78",
    "65bfd50520b4c3d64de5595e0dfc260d",
    "25ff31dffdf1d52f6fd62d5ebc207661",
    "de85c98b4efe480ec6765cae3e59855a",
    "5c2b06850230f1c53ef8bfbd3b0252a3",
    "63b0c99df32921be0a9a58de51976c28",
    "5e8b618cfec752e4a5e5d31bca06a6cb",
    "1738626f7d3c8de80bddeb7da82fe0ee",
    "11c182f131b219c2c45e160c7a23a504",
    "87b8cf6d9c8bf55a014af4fe505a2502",
    "bedea2644839fcaa46692c8f3d6e6692",
    "e708640cb6d67174e09bdd8eb87a5bdc",
    "91f853ad7cd01e9c11ba6e68f97d0be4",
    "a222131a36f3ff3d37af53de754e8eca",
)
