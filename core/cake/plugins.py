"""Finds, loads, isolates and names plugins: first the files of a workspace, then entry points.

A workspace is a folder with `plugins/` and `rules/`. The folder of a file says its kind; the file needs no
registration. A plugin that cannot be used (it raises on import, has no docstring, disagrees with its file's
name, or its name is taken) is recorded with file, line and reason, and switched off; the rest goes on.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pluggy

from cake import hookimpl, hookspecs
from cake.errors import CakeError
from cake.kinds.calibration import Calibration
from cake.kinds.device import Device
from cake.kinds.primitive import Primitive
from cake.kinds.proposer import Proposer
from cake.kinds.rule import Rule
from cake.kinds.tactic import Tactic
from cake.kinds.task import Task

PACKAGE = "cake_plugins"
"""Plugin files are imported as `cake_plugins.FOLDER.SLUG`, so that they may import one another."""

ENTRY_POINT = "entry point"
"""The kind of record of an entry-point module that fails before it can say which plugins it brings."""

SLUG = r"[a-z][a-z0-9]*(_[a-z][a-z0-9]*)*"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of plugin: where its files lie, what they define, which hook they answer."""

    name: str
    folder: str
    base: type
    family: bool = False
    """A file may define several classes, none of which need be called after the file."""

    @property
    def package(self) -> str:
        return f"{PACKAGE}.{Path(self.folder).name}"

    @property
    def plural(self) -> str:
        return f"{self.name}s"

    @property
    def hook(self) -> str:
        return f"cake_{self.plural}"

    @property
    def constant(self) -> str:
        """The name under which a file may hold one ready object in place of a class."""
        return self.name.upper()


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("primitive", "plugins/primitives", Primitive, family=True),
        Kind("rule", "rules", Rule),
        Kind("tactic", "tactics", Tactic),
        Kind("calibration", "calibrations", Calibration),
        Kind("task", "plugins/tasks", Task),
        Kind("device", "plugins/devices", Device),
        Kind("proposer", "plugins/agents", Proposer),
    )
}


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """A plugin as `cake plugins` lists it. `author` and `commit` stay empty until git is asked."""

    kind: str
    name: str
    origin: str
    """`workspace`, `seed`, or `entry point NAME`."""
    path: str
    line: int = 0
    error: str = ""
    author: str = ""
    commit: str = ""


@dataclass(frozen=True, slots=True)
class Registry:
    """Every usable plugin by kind and name, in the order of names, and a record of each plugin found."""

    root: Path
    primitives: dict[str, Primitive] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    tactics: dict[str, Tactic] = field(default_factory=dict)
    calibrations: dict[str, Calibration] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    proposers: dict[str, Proposer] = field(default_factory=dict)
    plugins: list[PluginRecord] = field(default_factory=list)

    @property
    def broken(self) -> list[PluginRecord]:
        return [record for record in self.plugins if record.error]

    @property
    def kernels(self) -> dict[str, Path]:
        """The workspace's kernel files by name: the golden corpus and the tasks' starting points."""
        return {path.stem: path for path in sorted((self.root / "plugins" / "kernels").glob("*.cake"))}

    def of(self, kind: str) -> dict[str, Any]:
        """The plugins of one kind by name."""
        found: dict[str, Any] = getattr(self, KINDS[kind].plural)
        return found

    def get(self, kind: str, name: str) -> Any:
        """The plugin of that kind and name. Raises CakeError that names the nearest ones."""
        known = self.of(kind)
        if name in known:
            return known[name]
        for record in self.broken:
            if (record.kind, record.name) == (kind, name):
                raise CakeError(f"{kind} {name} is broken: {record.path}:{record.line}: {record.error}")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
        raise CakeError(f"no {kind} is called {name!r}; {hint}")


def load(root: Path | None = None) -> Registry:
    """Load the plugins of the workspace `root` and of installed distributions.

    Without `root`: the workspace that holds the current folder, else the seed set that ships with cake.
    Raises CakeError when `root` is no workspace; a broken plugin never raises.
    """
    home, origin = _home(root)
    registry = Registry(home)
    _serve(home)
    for kind in KINDS.values():
        for path in plugin_files(home, kind):
            _register(registry, kind, path, origin)
    for point in sorted(entry_points(group="cake"), key=lambda point: point.name):
        _register_entry_point(registry, point)
    for kind in KINDS.values():
        known = registry.of(kind.name)
        for name in sorted(known):
            known[name] = known.pop(name)
    order = [*KINDS, ENTRY_POINT]
    registry.plugins.sort(key=lambda record: (order.index(record.kind), record.name, record.path))
    return registry


def plugin_files(root: Path, kind: Kind) -> list[Path]:
    """The files of that kind in a workspace, sorted; a leading underscore marks a helper, no plugin."""
    return sorted(p for p in (root / kind.folder).glob("*.py") if not p.name.startswith("_"))


def find_workspace(start: Path) -> Path | None:
    """The nearest folder at or above `start` that is a workspace."""
    return next((folder for folder in (start, *start.parents) if is_workspace(folder)), None)


def is_workspace(folder: Path) -> bool:
    return (folder / "plugins").is_dir() and (folder / "rules").is_dir()


def camel(slug: str) -> str:
    """The class name that goes with a slug: `unfenced_tma_store` -> `UnfencedTmaStore`."""
    return "".join(part[:1].upper() + part[1:] for part in slug.split("_"))


def snake(name: str) -> str:
    """The slug that goes with a class name: `UnfencedTmaStore` -> `unfenced_tma_store`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _home(root: Path | None) -> tuple[Path, str]:
    if root is not None:
        if not is_workspace(root):
            raise CakeError(f"{root} is no workspace: it has no plugins/ and rules/ folders")
        return root.resolve(), "workspace"
    found = find_workspace(Path.cwd())
    if found is not None:
        return found, "workspace"
    package = Path(__file__).resolve().parent
    for seed in (package / "_seed", package.parents[1]):
        if is_workspace(seed):
            return seed, "seed"
    raise CakeError("no workspace here and no seed plugins installed; run inside a cake repository")


# --- importing files ---------------------------------------------------------------------------------------


class _Loader(SourceFileLoader):
    """Compiles from source each time: bytecode caches miss a rewrite of equal size within a second."""

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Serves `cake_plugins` and what lies below it from one workspace."""

    def __init__(self, root: Path) -> None:
        self.folders = {kind.package: root / kind.folder for kind in KINDS.values()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == PACKAGE or fullname in self.folders:
            return ModuleSpec(fullname, None, is_package=True)
        package, _, slug = fullname.rpartition(".")
        folder = self.folders.get(package)
        if folder is None or not (folder / f"{slug}.py").is_file():
            return None
        file = str(folder / f"{slug}.py")
        return importlib.util.spec_from_file_location(fullname, file, loader=_Loader(fullname, file))


def _serve(root: Path) -> None:
    """Make `root` the workspace that `cake_plugins` is imported from, forgetting the one before."""
    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    sys.meta_path.insert(0, _Finder(root))


# --- from module to plugin ---------------------------------------------------------------------------------


class _Unusable(Exception):
    """Why a plugin is switched off, with the line to look at."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


class _FilePlugin:
    """Answers the hook of its kind with what a file defines."""

    def __init__(self, kind: Kind, contributions: list[Any]) -> None:
        def contribute() -> list[Any]:
            return contributions

        setattr(self, kind.hook, hookimpl(contribute))


def _register(registry: Registry, kind: Kind, path: Path, origin: str) -> None:
    slug = path.stem
    shown = str(path.relative_to(registry.root))

    def read() -> None:
        if not re.fullmatch(SLUG, slug):
            raise _Unusable("a plugin file is named in lower case, words begun by a letter, with underscores")
        module = importlib.import_module(f"{kind.package}.{slug}")
        if not (module.__doc__ or "").strip():
            raise _Unusable("the file has no docstring; it is what `cake explain` prints")
        manager = _manager(_FilePlugin(kind, _contributions(module, kind, slug)))
        _admit(registry, manager, kind, origin, shown)

    _guarded(registry, read, kind=kind.name, name=slug, origin=origin, path=path, shown=shown)


def _register_entry_point(registry: Registry, point: EntryPoint) -> None:
    origin = f"{ENTRY_POINT} {point.name}"
    path = _module_file(point.module)
    managers: list[pluggy.PluginManager] = []

    def read() -> None:
        managers.append(_manager(point.load()))

    if not _guarded(registry, read, kind=ENTRY_POINT, name=point.name, origin=origin, path=path):
        return
    for kind in KINDS.values():

        def admit(kind: Kind = kind) -> None:
            _admit(registry, managers[0], kind, origin, str(path))

        _guarded(registry, admit, kind=kind.name, name=point.name, origin=origin, path=path)


def _module_file(name: str) -> Path:
    """Where a module's text lies, without importing it; its bare name where that cannot be told."""
    spec = importlib.util.find_spec(name.partition(".")[0])
    if spec is None or spec.origin is None:
        return Path(name)
    inside = Path(spec.origin).parent.joinpath(*name.split(".")[1:])
    return Path(spec.origin) if "." not in name else inside.with_suffix(".py")


def _manager(plugin: object) -> pluggy.PluginManager:
    """A manager of one plugin alone, so that what is wrong with it touches no other."""
    manager = pluggy.PluginManager("cake")
    manager.add_hookspecs(hookspecs)
    manager.register(plugin)
    manager.check_pending()
    return manager


def _guarded(
    registry: Registry,
    action: Callable[[], None],
    *,
    kind: str,
    name: str,
    origin: str,
    path: Path,
    shown: str = "",
) -> bool:
    """Run the plugin's code; what it raises, `SystemExit` included, becomes its record. Ctrl-C passes."""
    try:
        action()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        line, message = _reason(error, path)
        registry.plugins.append(PluginRecord(kind, name, origin, shown or str(path), line, message))
        return False
    return True


def _reason(error: BaseException, path: Path) -> tuple[int, str]:
    """The line of `path` at fault and what is wrong there."""
    if isinstance(error, _Unusable):
        return error.line, str(error)
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1, f"SyntaxError: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), 1)
    text = " ".join(str(error).split())
    return line or 1, f"{type(error).__name__}: {text}" if text else type(error).__name__


def _contributions(module: ModuleType, kind: Kind, slug: str) -> list[Any]:
    """The classes (or the one object) of its kind that a file defines, in the order of the text."""
    ready = getattr(module, kind.constant, None)
    if isinstance(ready, kind.base):
        if isinstance(ready, Calibration) and names_of(ready) != (slug,):
            raise _Unusable(f"the file holds {names_of(ready)[0]}: name it {names_of(ready)[0]}.py")
        return [ready]
    found = [value for value in vars(module).values() if _defined_here(value, module, kind)]
    if not found:
        wanted = kind.constant if kind.base is Calibration else f"class {camel(slug)}"
        raise _Unusable(f"defines no {kind.base.__name__}: expected {wanted}")
    if not kind.family:
        wrong = [cls for cls in found if cls.__name__ != camel(slug)]
        if wrong:
            raise _Unusable(
                f"class {wrong[0].__name__} disagrees with the file: expected {camel(slug)}",
                _line(wrong[0]),
            )
    return found


def _defined_here(value: object, module: ModuleType, kind: Kind) -> bool:
    return (
        inspect.isclass(value)
        and issubclass(value, kind.base)
        and value.__module__ == module.__name__
        and not value.__name__.startswith("_")
    )


def _admit(registry: Registry, manager: pluggy.PluginManager, kind: Kind, origin: str, shown: str) -> None:
    """Ask the hook of one plugin, and enter what it answers, all or nothing."""
    known = registry.of(kind.name)
    entered: dict[str, Any] = {}
    records: list[PluginRecord] = []
    for item in chain.from_iterable(getattr(manager.hook, kind.hook)()):
        line = _line(item)
        thing = _made(item, kind, line)
        for name in names_of(thing):
            if name in known or name in entered:
                holder = next(r.path for r in [*registry.plugins, *records] if r.name == name)
                raise _Unusable(f"the name {name} is taken by {holder}", line)
            entered[name] = thing
            records.append(PluginRecord(kind.name, name, origin, shown, line))
    known.update(entered)
    registry.plugins.extend(records)


def _made(item: Any, kind: Kind, line: int) -> Any:
    """The object itself: a class is made without arguments."""
    if inspect.isclass(item):
        if inspect.isabstract(item):
            missing = ", ".join(sorted(getattr(item, "__abstractmethods__", ())))
            raise _Unusable(f"class {item.__name__} does not define {missing}", line)
        item = item()
    if not isinstance(item, kind.base):
        raise _Unusable(f"{kind.hook} answered {item!r}, which is no {kind.base.__name__}", line)
    return item


def names_of(thing: Any) -> tuple[str, ...]:
    """The names that a plugin is known by: a primitive may have several, the others are called by one."""
    match thing:
        case Primitive():
            return thing.names
        case Rule():
            return (thing.code(),)
        case Calibration():
            return (f"{thing.device}_{thing.concern}".lower(),)
        case Tactic():
            return (thing.slug(),)
        case Task() | Proposer():
            return (thing.name(),)
        case Device():
            return (thing.name,)
        case _:
            raise AssertionError(f"no kind: {thing!r}")


def _line(item: Any) -> int:
    """Where a class begins; 1 for objects and for classes without source."""
    try:
        return inspect.getsourcelines(item)[1] if inspect.isclass(item) else 1
    except (OSError, TypeError):
        return 1
