"""Writer: collects the CUDA text of one kernel. Implements kinds.primitive.Writer for primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cake.codegen.expressions import ADDITIVE, MULTIPLICATIVE, group, level, summands, total
from cake.codegen.pieces import ctype, packing
from cake.codegen.plan import TensorMapParam
from cake.codegen.ranges import ANY, Range, fits_int
from cake.ir.instance import Instance
from cake.ir.types import Buffer, FragmentType
from cake.kinds.primitive import Registers, Window

ELEMENT = {
    "bf16": "unsigned short",
    "f16": "unsigned short",
    "f32": "float",
    "i32": "int",
    "u32": "unsigned",
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
        self.placed: dict[str, int] = {}
        self.origins: dict[str, Range] = {}
        self.constexprs: dict[str, int] = {}
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
        """Shared address of an element. The swizzle xors bits 4 to 6 of the byte offset in the buffer with
        bits 7 to 9. Terms that are multiples of its period (8 spans) pass through unchanged and stay
        outside, so that a ring's slot costs one addition and the rest is computed once before the loop.
        """
        buffer = window.buffer
        period = 8 * buffer.swizzle
        base = self.base(buffer.name, buffer.offset)
        outer: list[str] = []
        inner: list[str] = []
        stride = buffer.dtype.bytes
        for axis in reversed(range(len(index))):
            rest: list[str] = []
            for term in (*summands(window.origin[axis]), *summands(index[axis])):
                word, factor = self.factored(term)
                if period and factor * stride % period:
                    rest.append(term)
                else:
                    outer.insert(0, times(word, factor * stride))
            if rest:
                inner.insert(0, times(total(rest), stride))
            stride *= buffer.shape[axis]
        words = [base, *outer]
        if inner:
            words.append(f"{self.swizzle(buffer.swizzle)}({total(inner)})")
        local = " + ".join(w for w in words if w != "0")
        return self.remote_address(local, window.rank) if window.rank else local

    def tensor_base(self) -> str:
        """C++ expression: the address of the tensor memory that was allocated, read from shared memory."""
        name = "cake_tensor_base"
        text = (
            "__device__ __forceinline__ unsigned cake_tensor_base(unsigned slot) {\n    unsigned base;\n"
            '    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(base) : "r"(slot) : "memory");\n'
            "    return base;\n}"
        )
        return f"{self.helper(name, text)}({self.tensor_slot()})"

    def tensor_slot(self) -> str:
        """C++ expression: the shared address of the word that holds the allocated address."""
        return self.base("cake_tensor_slot", self.instance.tensor_slot)

    def tensor_address(self, window: Window, column: int = 0) -> str:
        """Tensor memory address of a 32-bit column of a window, lane 0: columns count from the lowest bit."""
        buffer = window.buffer
        width = buffer.shape[-1] * buffer.dtype.bytes // 4
        terms: list[str] = []
        stride = width
        for axis in reversed(range(len(buffer.shape) - 2)):
            terms.insert(0, times(group(window.origin[axis], MULTIPLICATIVE), stride))
            stride *= buffer.shape[axis]
        packed = 4 // buffer.dtype.bytes
        inner = window.origin[-1]
        if packed > 1:
            inner = str(int(inner) // packed) if inner.isdigit() else f"({inner}) / {packed}"
        terms += [*summands(inner), str(buffer.offset + column)]
        return total(["cake_tensor", *(t for t in terms if t != "0")])

    def swizzle(self, span: int) -> str:
        """Name of the device function that places a byte offset under a swizzle of `span` bytes."""
        name = f"cake_swizzle_{span}"
        return self.helper(
            name,
            f"__device__ __forceinline__ unsigned {name}(unsigned offset) {{\n"
            f"    return offset ^ ((offset >> 7 & {span // 16 - 1}) << 4);\n}}",
        )

    def factored(self, term: str) -> tuple[str, int]:
        """A term as a text and the literal it is multiplied with, at least 1."""
        if term.isdigit():
            return "1", int(term)
        word, _, last = term.rpartition(" * ")
        value = int(last) if last.isdigit() else self.constexprs.get(last, 0)
        if word and value > 0 and level(word) >= MULTIPLICATIVE and level(term) == MULTIPLICATIVE:
            return word, int(value)
        return term, 1

    def base(self, name: str, offset: int) -> str:
        """The C++ name of the shared address of a buffer or an array of mbarriers."""
        self.placed[name] = offset
        return name

    def global_index(self, window: Window, index: Sequence[str]) -> str:
        """Element index in a global tensor, Horner's way; in 64 bits where the window may need them."""
        self.pointers.add(window.buffer.name)
        text, narrow = "0", self.reaches(window) < 2**31
        for axis, (origin, at) in enumerate(zip(window.origin, index, strict=True)):
            if text != "0":
                text = times(text, window.buffer.shape[axis])
            term = total([*summands(origin), *summands(at)])
            if not narrow and text == "0" and term != "0" and not term.startswith("static_cast<long long>"):
                term = f"static_cast<long long>({term})"
            text = total([t for t in (text, *summands(term)) if t != "0"])
        return group(text, ADDITIVE)

    def reaches(self, window: Window) -> int:
        """The greatest element index of the window, wherever it starts; partial products included."""
        most = 0
        for origin, size, extent in zip(window.origin, window.size, window.buffer.shape, strict=True):
            low, high = self.span(origin)
            most = most * extent + max(abs(low), abs(high)) + size - 1
        return most

    def span(self, origin: str) -> Range:
        """What the start of a window of the call under way may be."""
        return (int(origin), int(origin)) if origin.isdigit() else self.origins.get(origin, ANY)

    def coordinate(self, origin: str) -> str:
        """Coordinates are signed 32-bit integers. A start beyond them, where no tensor has elements, is put
        at their limit: cut off to 32 bits it would name a place inside."""
        if fits_int(self.span(origin)):
            return f"static_cast<int>({origin})"
        name = "cake_coordinate"
        text = (
            "__device__ __forceinline__ int cake_coordinate(long long start) {\n"
            "    return static_cast<int>(min(max(start, -0x80000000ll), 0x7fffffffll));\n}"
        )
        return f"{self.helper(name, text)}({origin})"

    def in_bounds(self, window: Window, index: Sequence[str]) -> str:
        """Whether an element lies inside the tensor; axes on which the window always does need no test."""
        tests = []
        for at, origin, extent, size in zip(
            index, window.origin, window.buffer.shape, window.size, strict=True
        ):
            low, high = self.span(origin)
            place = total([*summands(origin), *summands(at)])
            if low < 0:
                tests.append(f"{place} >= 0")
            if high + size > extent:
                tests.append(f"{place} < {extent}")
        return " && ".join(tests) or "true"

    def remote_address(self, address: str, rank: str) -> str:
        """The address, in the cluster's shared window, of what lies at `address` in CTA `rank`."""
        name = "cake_mapa"
        text = (
            "__device__ __forceinline__ unsigned cake_mapa(unsigned address, int rank) {\n"
            "    unsigned there;\n"
            '    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));\n'
            "    return there;\n}"
        )
        return f"{self.helper(name, text)}({address}, {rank})"

    def barrier_address(self, operand: Any) -> str:
        """Shared address of one mbarrier."""
        return str(operand)

    def tensor_map(self, buffer: Buffer, box: tuple[int, ...], swizzle: int) -> str:
        """The tensor map parameter for this tensor, box and swizzle."""
        tensor = next(n for n in self.instance.buffers if c_name(n) == buffer.name)
        param = TensorMapParam(tensor, tuple(box), swizzle)
        for name, known in self.maps.items():
            if known == param:
                return name
        name = f"cake_map_{buffer.name}"
        if name in self.maps:
            name = self.unique(name)
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


def times(text: str, factor: int) -> str:
    """A product with a literal, folded where it can be."""
    if text.isdigit():
        return str(int(text) * factor)
    return text if factor == 1 else f"{group(text, MULTIPLICATIVE)} * {factor}"


_RESERVED = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t
class compl concept const const_cast consteval constexpr constinit continue co_await co_return co_yield
decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
protected public register reinterpret_cast requires return short signed sizeof static static_assert
static_cast struct switch template this thread_local throw true try typedef typeid typename union
unsigned using virtual void volatile wchar_t while xor xor_eq
blockIdx blockDim gridDim threadIdx warpSize CUtensorMap fabsf fmaxf fminf fmaf main uint2 uint4
make_uint2 make_uint4 float2 float4 make_float2 make_float4"""
RESERVED = frozenset(_RESERVED.split())
"""Words of C++, and names of CUDA that generated text relies on."""


def c_name(name: str) -> str:
    """An author's name in C++, different for different names. Reserved words, `cake_...` (the frame's names),
    `..._` (the primitives' locals) and `__...` get `_x` behind them; so do these with `_x` already."""
    stem = name
    while stem.endswith("_x"):
        stem = stem.removesuffix("_x")
    taken = stem in RESERVED or stem.startswith(("cake_", "__")) or stem.endswith("_") or not stem
    return f"{name}_x" if taken else name


def _c_string(path: str) -> str:
    """The path inside a C string literal, forward slashes throughout."""
    return "".join(c for c in path.replace("\\", "/") if c.isprintable()).replace('"', "'")
