"""CUDA text -> cubin by NVRTC, for any architecture, with or without a GPU; cached by content.

NVRTC's errors carry the `.cake` lines that `#line` gave them and come back as diagnostics. Registers, spills
and shared memory are read from ptxas' own report.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path

from cake.diagnostics import Diagnostic, KernelErrors, Label, Source, Span
from cake.errors import MissingEnvironment

OPTIONS = ("--std=c++17", "-default-device", "--ptxas-options=-v")
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Compiled:
    """A cubin and what it takes: registers a thread, bytes spilled, of stack and of static shared memory.

    `notes` are ptxas' remarks with a code (C7510 and the like: wgmma serialized).
    """

    cubin: bytes
    arch: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_shared_bytes: int
    notes: tuple[str, ...]
    log: str = field(compare=False)

    @property
    def spill_bytes(self) -> int:
        return self.spill_store_bytes + self.spill_load_bytes


def compile_source(source: str, arch: str, *, cache_dir: Path | None = None, path: str = "") -> Compiled:
    """Compile `source` for `arch`. `path` is the kernel file that `#line` names, for diagnostics.

    Raises KernelErrors (`compile/nvrtc`) for a refused text, MissingEnvironment where NVRTC is missing.
    """
    major, minor = nvrtc_version()
    key = sha256("\0".join([source, arch, f"{major}.{minor}", *OPTIONS, str(SCHEMA)]).encode()).hexdigest()
    if cache_dir is not None and (found := _cached(cache_dir / key[:2] / key)) is not None:
        return found
    cubin, log = _nvrtc(source, arch, path)
    compiled = Compiled(cubin, arch, *_resources(log), notes=_notes(log), log=log)
    if cache_dir is not None:
        _keep(cache_dir / key[:2] / key, compiled)
    return compiled


@cache
def nvrtc_version() -> tuple[int, int]:
    """NVRTC's version. Raises MissingEnvironment where it cannot be loaded."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as e:
        raise MissingEnvironment(
            f"compiling needs cuda-bindings: {e}; install it with `pip install cuda-bindings`"
        ) from e
    try:
        status, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as e:
        hint = "install it with `pip install 'nvidia-cuda-nvrtc>=13.3,<14'`"
        raise MissingEnvironment(f"compiling needs the NVRTC library: {e}; {hint}") from e
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise MissingEnvironment(f"NVRTC does not answer: {status}")
    return int(major), int(minor)


def _nvrtc(source: str, arch: str, path: str) -> tuple[bytes, str]:
    from cuda.bindings import nvrtc

    ok = nvrtc.nvrtcResult.NVRTC_SUCCESS

    def call(result: tuple[object, ...]) -> object:
        status, *values = result
        if status != ok:
            raise MissingEnvironment(f"NVRTC failed: {status}")
        return values[0] if values else None

    program = call(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    try:
        options = [f"--gpu-architecture={arch}".encode(), *(o.encode() for o in OPTIONS)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        size = call(nvrtc.nvrtcGetProgramLogSize(program))
        assert isinstance(size, int)
        buffer = b" " * size
        call(nvrtc.nvrtcGetProgramLog(program, buffer))
        log = buffer.rstrip(b"\0 ").decode(errors="replace")
        if status != ok:
            raise KernelErrors(_errors(log, path), Source(path or "kernel.cu", _text(path)))
        size = call(nvrtc.nvrtcGetCUBINSize(program))
        assert isinstance(size, int)
        cubin = b" " * size
        call(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(path: str) -> str:
    try:
        return Path(path).read_text() if path else ""
    except (OSError, UnicodeDecodeError):
        return ""


_ERROR = re.compile(
    r"^(?P<file>.*?)\((?P<line>\d+)\): (?:catastrophic )?error\b:? ?(?P<words>.*)$", re.MULTILINE
)
_RESOURCES = {
    "registers": r"Used (\d+) registers",
    "stores": r"(\d+) bytes spill stores",
    "loads": r"(\d+) bytes spill loads",
    "stack": r"(\d+) bytes stack frame",
    "shared": r"(\d+) bytes smem",
}


def _errors(log: str, path: str) -> Sequence[Diagnostic]:
    """NVRTC's and ptxas' errors as diagnostics, at the kernel's lines where `#line` named its file."""
    found = []
    for match in _ERROR.finditer(log):
        line = int(match["line"]) if path and match["file"] == path.replace("\\", "/") else 0
        span = Span(line, 0, line, 200)
        found.append(Diagnostic("compile/nvrtc", match["words"].strip(), Label(span)))
    if not found:
        words = next(
            (line for line in log.splitlines() if "error" in line), log.strip()[:300] or "no message"
        )
        found.append(Diagnostic("compile/nvrtc", words.strip(), Label(Span(0, 0, 0, 0))))
    return found[:10]


def _resources(log: str) -> tuple[int, int, int, int, int]:
    """Registers, spill stores, spill loads, stack frame, static shared memory; the largest reported."""

    def largest(pattern: str) -> int:
        return max((int(found) for found in re.findall(pattern, log)), default=0)

    registers, stores, loads, stack, shared = (largest(pattern) for pattern in _RESOURCES.values())
    return registers, stores, loads, stack, shared


def _notes(log: str) -> tuple[str, ...]:
    lines = [line.strip() for line in log.splitlines()]
    return tuple(line for line in lines if re.search(r"\bC7\d{3}\b", line))


def _cached(folder: Path) -> Compiled | None:
    """A complete entry, or None: a corrupt one is compiled anew."""
    try:
        meta = json.loads((folder / "meta.json").read_text())
        cubin = (folder / "kernel.cubin").read_bytes()
        if meta.pop("sha256") != sha256(cubin).hexdigest():
            return None
        return Compiled(cubin=cubin, notes=tuple(meta.pop("notes")), **meta)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _keep(folder: Path, compiled: Compiled) -> None:
    """Write the entry beside its place and rename it, so that no reader meets half of one."""
    meta = {k: v for k, v in asdict(compiled).items() if k != "cubin"}
    meta["sha256"] = sha256(compiled.cubin).hexdigest()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            work = Path(made) / "entry"
            work.mkdir()
            (work / "kernel.cubin").write_bytes(compiled.cubin)
            (work / "meta.json").write_text(json.dumps(meta))
            if not folder.exists():
                os.rename(work, folder)
            else:
                for name in ("kernel.cubin", "meta.json"):
                    os.replace(work / name, folder / name)
    except OSError:
        # A cache that cannot be written costs time, never the result.
        return
