"""Writer: collects the CUDA text of one kernel. Implements kinds.primitive.Writer for primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cake.codegen.pieces import ctype, packing
from cake.codegen.plan import TensorMapParam
from cake.ir.instance import Instance
from cake.ir.types import Buffer, FragmentType
from cake.kinds.primitive import Registers, Window

ELEMENT = {
    "bf16": "unsigned short",
    "f16": "unsigned short",
    "f32": "float",
    "i32": "int",
    "e4m3": "unsigned char",
    "e5m2": "unsigned char",
}
"""C type of one element of a global tensor; 16- and 8-bit floats travel as bits."""


class Writer:
    """The body of a kernel under construction."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.lines: list[str] = []
        self.helpers: dict[str, str] = {}
        self.maps: dict[str, TensorMapParam] = {}
        self.pointers: set[str] = set()
        self.notes: list[dict[str, list[Registers]]] = [{}]
        self.homes: dict[str, dict[str, list[Registers]]] = {}
        self.depth = 1
        self.count = 0
        self.at = 0
        self.counted = 0

    # --- text ---------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """One line at the current indentation, which follows the braces."""
        if text.startswith("}"):
            self.depth -= 1
            if not text.endswith("{"):
                self.notes.pop()
        self._number()
        self.lines.append("    " * self.depth + text)
        if text.endswith("{"):
            self.depth += 1
            if not text.startswith("}"):
                self.notes.append({})

    def place(self, line: int) -> None:
        """What is written from now on stands on `line` of the kernel's text."""
        self.at = line or self.at

    def _number(self) -> None:
        """Tell the compiler the kernel's line where its own counting, one up a line, would be wrong."""
        if not self.at:
            return
        if self.counted != self.at:
            named = "" if self.counted else f' "{_c_string(self.instance.kernel.source.path)}"'
            self.lines.append(f"#line {self.at}{named}")
        self.counted = self.at + 1

    def asm(
        self,
        template: str,
        outputs: Sequence[tuple[str, str]] = (),
        inputs: Sequence[tuple[str, str]] = (),
        *,
        memory: bool = True,
    ) -> None:
        """An `asm volatile` with operands (constraint, expression)."""

        def operands(pairs: Sequence[tuple[str, str]]) -> str:
            return ", ".join(f'"{constraint}"({text})' for constraint, text in pairs)

        clobber = ' : "memory"' if memory else ""
        text = template.replace("\n", "\\n\\t")
        written = f" : {operands(outputs)} : " if outputs else " :: " if inputs else " ::"
        self.line(f'asm volatile("{text}"{written}{operands(inputs)}{clobber});')

    def unique(self, stem: str) -> str:
        """A fresh identifier."""
        self.count += 1
        return f"{stem}_{self.count}"

    def temporary(self, kind: FragmentType) -> Registers:
        """Fresh registers, declared here."""
        return self.declare(self.unique("cake_t"), kind)

    def declare(self, name: str, kind: FragmentType) -> Registers:
        """Declare `name` as the registers of a fragment."""
        count = -(-kind.registers // packing(kind.dtype))
        registers = Registers(name, kind, ctype(kind.dtype), count)
        self.line(f"{registers.ctype} {name}[{count}];")
        self.homes[name] = self.notes[-1]
        return registers

    def helper(self, name: str, text: str) -> str:
        """Put a device function before the kernel, once."""
        self.helpers.setdefault(name, text)
        return name

    def remember(self, key: str, registers: Registers) -> None:
        """Note registers until the scope that declares them closes."""
        home = self.homes.get(registers.name, self.notes[-1])
        home.setdefault(key, []).append(registers)

    def remembered(self, key: str) -> Sequence[Registers]:
        """Live registers noted under `key`, each once."""
        found = [r for scope in self.notes for r in scope.get(key, [])]
        return list({r.name: r for r in found}.values())

    # --- addresses ----------------------------------------------------------------------------------------

    def shared_address(self, window: Window, index: Sequence[str]) -> str:
        """Shared address of an element, the swizzle applied to its byte offset in the buffer."""
        buffer = window.buffer
        offset = _linear(window, index)
        size = buffer.dtype.bytes
        scaled = f"{_group(offset)} * {size}" if size > 1 and offset != "0" else offset
        if not buffer.swizzle:
            return f"cake_base + {buffer.offset} + static_cast<unsigned>({scaled})"
        swizzle = self.helper(
            f"cake_swizzle_{buffer.swizzle}",
            f"__device__ __forceinline__ unsigned cake_swizzle_{buffer.swizzle}(unsigned offset) {{\n"
            f"    return offset ^ ((offset >> 7 & {buffer.swizzle // 16 - 1}) << 4);\n}}",
        )
        return f"cake_base + {buffer.offset} + {swizzle}(static_cast<unsigned>({scaled}))"

    def global_index(self, window: Window, index: Sequence[str]) -> str:
        """Element index in a global tensor, in 64 bits."""
        self.pointers.add(window.buffer.name)
        return _linear(window, index, wide=True)

    def in_bounds(self, window: Window, index: Sequence[str]) -> str:
        """Whether an element lies inside the tensor; windows that always do need no test."""
        tests = []
        for at, origin, extent, size in zip(
            index, window.origin, window.buffer.shape, window.size, strict=True
        ):
            if size == 1 and at == "0":
                continue
            if origin == "0" and size <= extent:
                continue
            tests.append(f"{_sum(origin, at)} < {extent}")
        return " && ".join(tests) or "true"

    def barrier_address(self, operand: Any) -> str:
        """Shared address of one mbarrier."""
        return str(operand)

    def tensor_map(self, buffer: Buffer, box: tuple[int, ...], swizzle: int) -> str:
        """The tensor map parameter for this tensor, box and swizzle."""
        tensor = next(n for n in self.instance.buffers if n in (buffer.name, buffer.name.removesuffix("_x")))
        param = TensorMapParam(tensor, tuple(box), swizzle)
        for name, known in self.maps.items():
            if known == param:
                return name
        name = (
            f"{buffer.name}_map"
            if f"{buffer.name}_map" not in self.maps
            else self.unique(f"{buffer.name}_map")
        )
        self.maps[name] = param
        return name

    @property
    def thread(self) -> str:
        return "cake_thread"

    @property
    def warp(self) -> str:
        return "cake_rank"

    @property
    def lane(self) -> str:
        return "cake_lane"


def _sum(a: str, b: str) -> str:
    """C++ text of a + b, parenthesized where it is more than a word."""
    if a == "0" or b == "0":
        return _group(b if a == "0" else a)
    return f"({_bare_sum(a)} + {_bare_sum(b)})"


def _bare_sum(text: str) -> str:
    """A summand: parentheses around plain sums and products are not needed, around others they stay."""
    inner = _bare(text)
    return text if set("?&|^<>=") & set(inner) else inner


def _linear(window: Window, index: Sequence[str], *, wide: bool = False) -> str:
    """Row-major element offset, Horner's way; zero terms are left out."""
    text = "0"
    for axis, (at, origin) in enumerate(zip(index, window.origin, strict=True)):
        term = _sum(origin, at)
        if wide and term != "0" and not term.isdigit():
            term = f"static_cast<long long>({_bare(term)})"
        if text == "0":
            text = term
            continue
        scaled = f"{_group(text)} * {window.buffer.shape[axis]}"
        text = scaled if term == "0" else f"{scaled} + {_bare_sum(term)}"
    return text


def _group(text: str) -> str:
    return f"({text})" if " " in text and not _enclosed(text) else text


def _bare(text: str) -> str:
    return text[1:-1] if _enclosed(text) else text


def _enclosed(text: str) -> bool:
    """Whether one pair of parentheses holds all of `text`."""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and position < len(text) - 1:
            return False
    return True


def _c_string(path: str) -> str:
    return path.replace("\\", "/").replace('"', "'")
