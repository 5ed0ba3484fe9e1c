"""A built kernel in a folder, so that it can be compiled on one machine and run on another.

`kernel.cu` for reading, `kernel.cubin` for the GPU, `plan.json` with the launch plan and where it all came
from. A folder of such folders has a `manifest.json` that lists them for `cake.device.suite`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from cake.codegen.plan import LaunchPlan
from cake.errors import CakeError

SCHEMA = 1
SOURCE, CUBIN, PLAN, MANIFEST = "kernel.cu", "kernel.cubin", "plan.json", "manifest.json"


@dataclass(frozen=True, slots=True)
class Artefact:
    """One kernel instance for one architecture.

    `kernel` is the content hash of its text, `resources` what the compiler reports (registers a thread,
    bytes), `task` the operator it serves where one is known.
    """

    name: str
    kernel: str
    dims: Mapping[str, int]
    constants: Mapping[str, int | float]
    plan: LaunchPlan
    source: str = field(repr=False)
    cubin: bytes = field(repr=False)
    resources: Mapping[str, Any]
    task: str = ""

    @property
    def folder_name(self) -> str:
        """A name that tells instances and architectures apart."""
        values = [*self.dims.items(), *self.constants.items()]
        return "-".join([self.name, *(f"{name}{value}" for name, value in values), self.plan.arch])

    def write(self, folder: Path) -> None:
        """Write the three files. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SOURCE).write_text(self.source, encoding="utf-8")
        (folder / CUBIN).write_bytes(self.cubin)
        document = {
            "schema": SCHEMA,
            "name": self.name,
            "task": self.task,
            "kernel": self.kernel,
            "dims": dict(self.dims),
            "constants": dict(self.constants),
            "resources": dict(self.resources),
            "cubin_sha256": sha256(self.cubin).hexdigest(),
            "plan": self.plan.to_json(),
        }
        (folder / PLAN).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def read(folder: Path) -> Artefact:
    """The artefact in a folder. Raises CakeError where it is not complete or not of this version."""
    try:
        document = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise CakeError(f"{folder / PLAN}: schema {document['schema']}, this cake reads {SCHEMA}")
        cubin = (folder / CUBIN).read_bytes()
        if sha256(cubin).hexdigest() != document["cubin_sha256"]:
            raise CakeError(f"{folder / CUBIN} is not the cubin that {PLAN} was written with; build it again")
        return Artefact(
            document["name"],
            document["kernel"],
            document["dims"],
            document["constants"],
            LaunchPlan.from_json(document["plan"]),
            (folder / SOURCE).read_text(encoding="utf-8"),
            cubin,
            document["resources"],
            document["task"],
        )
    except OSError as error:
        raise CakeError(
            f"{folder} holds no built kernel: {error}; write one with `cake build --out`"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CakeError(f"{folder / PLAN} is damaged ({error}); build it again") from error


def enlist(folder: Path, names: list[str]) -> None:
    """Add artefact folders below `folder` to its manifest, each once, in order. Raises OSError, CakeError."""
    known = listed(folder / MANIFEST) if (folder / MANIFEST).exists() else []
    entries = [*known, *(name for name in names if name not in known)]
    document = {"schema": SCHEMA, "artefacts": entries}
    (folder / MANIFEST).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def listed(manifest: Path) -> list[str]:
    """The artefact folders that a manifest names, relative to it. Raises CakeError."""
    try:
        document = json.loads(manifest.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise CakeError(f"{manifest}: schema {document['schema']}, this cake reads {SCHEMA}")
        return [str(name) for name in document["artefacts"]]
    except OSError as error:
        raise CakeError(f"cannot read {manifest}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CakeError(f"{manifest} is no manifest of built kernels ({error})") from error
