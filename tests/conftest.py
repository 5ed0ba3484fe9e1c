"""Fixtures that all tests share. Imports only what a bare GPU host has: `make gpu` loads this file too."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.plugins import Registry, load

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository: itself a workspace."""
    return ROOT


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The plugins of this repository."""
    return load(ROOT)
