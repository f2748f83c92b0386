"""Digests of twenty runs of the counting machines, equal on every Python.

A change of the simulator may change them: run ``digests`` of ``test_replay`` and say in the commit why they did.
"""

from __future__ import annotations

PINNED: tuple[str, ...] = (
    "78131d36c78d2a7ef8c5e40ca9586e77",
    "ef19a50d549cb46506e909333ffe3e38",
    "6e907934c4a1c3fb179376bb1c097f8e",
    "8b783a98ecd13649feb312836f18996d",
    "644ea3b4462f8d5d80ab96c85563be1a",
    "280154479b15c1055fb5aafbbd6d85e1",
    "da103612e0ccc5e21bef4ed51385239c",
    "173fdc17e0ec060a8113c150e465d66d",
    "fe4d3c0881876e54a50632d0ec1359a0",
    "de85c98b4efe480ec6765cae3e59855a",
    "7a9e295d98c788cb57c965c3cc17b8a7",
    "63b0c99df32921be0a9a58de51976c28",
    "94203124297dd22ca5f5080b1a454718",
    "1738626f7d3c8de80bddeb7da82fe0ee",
    "1135319f28955b0443bc3fe50da3745f",
    "87b8cf6d9c8bf55a014af4fe505a2502",
    "e266f927b3bae6fa691bb3335af300db",
    "e708640cb6d67174e09bdd8eb87a5bdc",
    "0c6d9784aa0546ed37feb25f33ec6a4b",
    "a222131a36f3ff3d37af53de754e8eca",
)
