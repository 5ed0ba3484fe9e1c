"""Ship the plugin folders in the wheel as the seed set, `cake/_seed`.

A static force-include would also leave a copy in editable installs, where the folders of the checkout itself
are the ones to load: so the copy is made for the standard wheel alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SEED = ("plugins", "rules", "tactics", "calibrations")


class SeedHook(BuildHookInterface[Any]):
    """Adds every file under the plugin folders, without caches, to a standard wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return
        root = Path(self.root)
        for folder in SEED:
            for file in sorted((root / folder).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    relative = file.relative_to(root).as_posix()
                    build_data["force_include"][str(file)] = f"cake/_seed/{relative}"
