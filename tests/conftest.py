"""Fixtures that all tests share. Imports only what a bare GPU host has: `make gpu` loads this file too."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from cake.plugins import Registry, load

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-snapshots", action="store_true", help="rewrite tests/snapshots/; read the difference"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Property-based tests try the same examples everywhere, and a busy machine does not fail them."""
    if find_spec("hypothesis") is not None:
        from hypothesis import settings

        settings.register_profile("house", deadline=None, derandomize=True)
        settings.load_profile("house")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository: itself a workspace."""
    return ROOT


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The plugins of this repository."""
    return load(ROOT)
