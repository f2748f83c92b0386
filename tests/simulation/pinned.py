"""Digests of twenty runs of the counting machines, equal on every Python.

A change of the simulator may change them: run ``digests`` of ``test_replay`` and say in the commit why they did.
"""

from __future__ import annotations

PINNED: tuple[str, ...] = (
    "fcbb1e680e4bba827de71a12fe2550c2",
    "836b93994575183f13aa9c23e88492a5",
    "360046e04e77b3f75ff7afef410cfeca",
    "11861d3d1678e0053af3b4c1c74efc16",
    "d36aab4f9a6ee28c21480d0d278ff9a2",
    "b588a410a6c58eb87a49f702c29bd1ec",
    "aff10795e3924810edf867ffdb17e01d",
    "9af4423c2e12aee471eadb8a3eab00f9",
    "86e1a2f1c122111f5fe4cf6ee4020c5f",
    "562630549b1edd22e7ba33e38d8b680f",
    "bb5cae3caf6a45386bea52f9c0498650",
    "40533a5d905bdf0db1ad0955e35e6242",
    "16e5b4b5b712bfc6c758a7e917f19188",
    "7b7a6054e5803b40dc64bb7f49ce51e6",
    "353a41c1f3078bce979b5aa4809bfbc9",
    "fe179f505434931fd53aa61e85384a16",
    "c83ab2d6d11d86bf3ff8830acb98f66e",
    "05df88a5f5f369ccb0a83c47ba198048",
    "068b000c12805165cc5c141e1445f4d7",
    "9583653bd80dadc381ef75a7afb8abd0",
)
