"""The whole extension surface of cake: one hook for each kind of plugin.

A plugin file in a workspace folder needs none of this: its folder says which kind it holds, and the loader
answers the hook for it. A Python distribution that brings plugins names a module under the entry point group
`cake` and implements the hooks there:

    import cake

    @cake.hookimpl
    def cake_rules():
        return [MyRule]

Each hook takes nothing and returns a list. An item is a subclass of the kind's base class, which is made once
without arguments, or an object of that base class. Names must be unique within a kind; a plugin that raises,
or whose names are taken, is switched off and listed by `cake plugins` with its file and line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from cake.kinds.calibration import Calibration
    from cake.kinds.device import Device
    from cake.kinds.primitive import Primitive
    from cake.kinds.proposer import Proposer
    from cake.kinds.rule import Rule
    from cake.kinds.tactic import Tactic
    from cake.kinds.task import Task

hookspec = pluggy.HookspecMarker("cake")


@hookspec
def cake_primitives() -> Sequence[type[Primitive] | Primitive]:
    """Instructions of the IR: signature, effects, value, time, CUDA text and cases in one class.

    Folder `plugins/primitives`; a file may hold a family of several classes.
    """


@hookspec
def cake_rules() -> Sequence[type[Rule] | Rule]:
    """Verifier rules: each finds one kind of fault in the typed IR or in the machine's facts.

    Folder `rules`; file, class and code agree: `unfenced_tma_store.py`, `UnfencedTmaStore`,
    `sync/unfenced-tma-store`.
    """


@hookspec
def cake_tactics() -> Sequence[type[Tactic] | Tactic]:
    """Optimization moves: each finds sites in a kernel and rewrites them to an equivalent, faster form.

    Folder `tactics`; file and class agree, named by the move in the imperative.
    """


@hookspec
def cake_calibrations() -> Sequence[type[Calibration] | Calibration]:
    """Parameters of the cost model for one device and one concern, with provenance.

    Folder `calibrations`; a file holds one `CALIBRATION` and is named DEVICE_CONCERN.
    """


@hookspec
def cake_tasks() -> Sequence[type[Task] | Task]:
    """Problems to evolve kernels for: tensors, shapes, inputs, float64 oracle, tolerance, first kernels.

    Folder `plugins/tasks`; file and class agree.
    """


@hookspec
def cake_devices() -> Sequence[type[Device] | Device]:
    """GPUs: architecture, units and capacities as the vendor states them.

    Folder `plugins/devices`; file and class agree, or the file holds one `DEVICE`.
    """


@hookspec
def cake_proposers() -> Sequence[type[Proposer] | Proposer]:
    """Authors of candidate kernels: given a parent and the session's memory, each proposes the next kernel.

    Folder `plugins/agents`; file and class agree.
    """
