"""CUDA text -> cubin by NVRTC, for any architecture, with or without a GPU; cached by content.

NVRTC's errors carry the `.cake` lines that `#line` gave them and come back as diagnostics. Registers, spills
and shared memory are read from ptxas' own report.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path

from cake.diagnostics import NOWHERE, Diagnostic, KernelErrors, Label, Source, Span
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
    cubin, log = _compile(source, arch, path)
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


def _compile(source: str, arch: str, path: str) -> tuple[bytes, str]:
    """Cubin and log. Raises KernelErrors."""
    cubin, log, _ = _nvrtc(source, arch, OPTIONS)
    if cubin:
        return cubin, log
    shown = Source(path or "kernel.cu", _text(path))
    if _PTX_ERROR.search(log):
        # The assembler counts lines of PTX; with line tables in it, those lead back to the kernel.
        _, again, ptx = _nvrtc(source, arch, (*OPTIONS, "-lineinfo"))
        raise KernelErrors(_assembler_errors(again, ptx, shown), shown)
    raise KernelErrors(_errors(log, shown), shown)


def _nvrtc(source: str, arch: str, options: Sequence[str]) -> tuple[bytes, str, str]:
    """Cubin (empty where the text is refused), log and PTX. Raises MissingEnvironment where NVRTC fails."""
    from cuda.bindings import nvrtc

    ok = nvrtc.nvrtcResult.NVRTC_SUCCESS

    def call(result: tuple[object, ...]) -> object:
        status, *values = result
        if status != ok:
            raise MissingEnvironment(f"NVRTC failed: {status}")
        return values[0] if values else None

    def text(size: object, get: Callable[..., tuple[object, ...]]) -> bytes:
        assert isinstance(size, int)
        if size <= 1:
            # Only a terminator. Python shares its one-byte strings: writing into one would change them all.
            return b""
        buffer = b" " * size
        call(get(program, buffer))
        return buffer

    program = call(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    try:
        words = [f"--gpu-architecture={arch}".encode(), *(o.encode() for o in options)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
        log = text(call(nvrtc.nvrtcGetProgramLogSize(program)), nvrtc.nvrtcGetProgramLog)
        ptx = text(call(nvrtc.nvrtcGetPTXSize(program)), nvrtc.nvrtcGetPTX)
        cubin = b""
        if status == ok:
            cubin = text(call(nvrtc.nvrtcGetCUBINSize(program)), nvrtc.nvrtcGetCUBIN)
        return cubin, _decoded(log), _decoded(ptx)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _decoded(text: bytes) -> str:
    return text.rstrip(b"\0 ").decode(errors="replace")


def _text(path: str) -> str:
    try:
        return Path(path).read_text() if path else ""
    except (OSError, UnicodeDecodeError):
        return ""


_ERROR = re.compile(
    r"^(?P<file>.*?)\((?P<line>\d+)\): (?:catastrophic )?error\b:? ?(?P<words>.*)$", re.MULTILINE
)
_PTX_ERROR = re.compile(r"^ptxas .*?, line (?P<line>\d+); error\s*: (?P<words>.*)$", re.MULTILINE)
_PLACE = re.compile(r"^\s*\.loc\s+(\d+) (\d+) \d+(?:, function_name \S+, inlined_at (\d+) (\d+) \d+)?")
_FILE = re.compile(r'^\s*\.file\s+(\d+) "(.*?)"', re.MULTILINE)
_MOST = 10
_RESOURCES = {
    "registers": r"Used (\d+) registers",
    "stores": r"(\d+) bytes spill stores",
    "loads": r"(\d+) bytes spill loads",
    "stack": r"(\d+) bytes stack frame",
    "shared": r"(\d+) bytes smem",
}


def _errors(log: str, shown: Source) -> Sequence[Diagnostic]:
    """NVRTC's errors as diagnostics, at the kernel's lines where `#line` named its file."""
    found = [
        _diagnostic(match["words"], int(match["line"]) if match["file"] == shown.path else 0, shown)
        for match in _ERROR.finditer(log)
    ]
    if not found:
        words = next((line for line in log.splitlines() if "error" in line), log[:300] or "no message")
        found.append(_diagnostic(words, 0, shown))
    return found[:_MOST]


def _assembler_errors(log: str, ptx: str, shown: Source) -> Sequence[Diagnostic]:
    """The assembler's errors at the kernel's lines that the PTX's own line table gives."""
    files = {int(number) for number, name in _FILE.findall(ptx) if name.endswith(shown.path)}
    lines = ptx.split("\n")
    found = []
    for match in _PTX_ERROR.finditer(log):
        number = int(match["line"])
        text = lines[number - 1].strip() if number <= len(lines) else ""
        words = f"{match['words'].strip()}: `{text}`" if text else match["words"]
        found.append(_diagnostic(words, _kernel_line(lines[:number], files), shown))
    return found[:_MOST] or _errors(log, shown)


def _kernel_line(lines: Sequence[str], files: set[int]) -> int:
    """The last place in one of `files` that a line table names before the end of `lines`; 0 for none."""
    for line in reversed(lines):
        if place := _PLACE.match(line):
            file, number, outer_file, outer_number = place.groups()
            if outer_file is not None and int(outer_file) in files:
                return int(outer_number)
            return int(number) if int(file) in files else 0
    return 0


def _diagnostic(words: str, line: int, shown: Source) -> Diagnostic:
    text = shown.lines[line - 1] if 0 < line <= len(shown.lines) else ""
    start = len(text) - len(text.lstrip())
    span = Span(line, start, line, max(len(text), start + 1)) if line else NOWHERE
    return Diagnostic("compile/nvrtc", words.strip(), Label(span))


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
