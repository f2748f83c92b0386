"""Ordinary operator mutation: small blind changes of machines and stores, one at a time, and who notices."""
