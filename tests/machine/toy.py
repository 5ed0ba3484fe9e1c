"""Toy instructions, one per effect, for testing the machine without any real primitive."""

from __future__ import annotations

from collections.abc import Sequence

from cake.ir.types import Type
from cake.kinds.primitive import Lowering, Op, Parameters, Primitive, Site, Use, Writer, parameter
from cake.machine import effects as fx


class Toy(Primitive):
    """An instruction without value, cost or text."""

    collective = False

    def signature(self, site: Site) -> Type | None:
        return None

    def time(self, op: Op, parameters: Parameters) -> Use:
        return Use(1)

    def lower(self, op: Lowering, out: Writer) -> None:
        return None


class Put(Toy):
    names = ("put",)
    parameters = (parameter("window", "shared"),)

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        return (fx.Write(op.region("window").buffer, op.region("window").box),)


class Get(Toy):
    names = ("get",)
    parameters = (parameter("window", "shared"),)

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        return (fx.Read(op.region("window").buffer, op.region("window").box),)


class CopyIn(Toy):
    names = ("copy_in",)
    parameters = (parameter("window", "shared"), parameter("barrier", "barrier"), parameter("bytes", "int"))

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        write = fx.Write(op.region("window").buffer, op.region("window").box)
        return (fx.Async(writes=(write,), barrier=op.args["barrier"], bytes=op.args["bytes"]),)


class CopyOut(Toy):
    names = ("copy_out",)
    parameters = (parameter("window", "shared"),)

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        read = fx.Read(op.region("window").buffer, op.region("window").box)
        return (fx.Async(reads=(read,), group="bulk"),)


class Commit(Toy):
    names = ("commit",)

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        return (fx.Commit("bulk"),)


class Drain(Toy):
    names = ("drain",)
    parameters = (parameter("pending", "int"),)

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        return (fx.WaitGroup("bulk", op.args["pending"]),)


class Init(Toy):
    names = ("init",)
    parameters = (parameter("barrier", "barrier"), parameter("arrivals", "int"))

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        return (fx.InitBarrier(op.args["barrier"], op.args["arrivals"]), fx.Fence("mbarrier_init"))


class Arrive(Toy):
    names = ("arrive",)
    parameters = (parameter("barrier", "barrier"), parameter("bytes", "int", default=0))

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        return (fx.Arrive(op.args["barrier"], op.args["bytes"]),)


class Wait(Toy):
    names = ("wait",)
    parameters = (parameter("barrier", "barrier"), parameter("parity", "int"))

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        return (fx.Wait(op.args["barrier"], op.args["parity"]),)


class Publish(Toy):
    names = ("publish",)

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        return (fx.Fence("async_proxy"),)


class Meet(Toy):
    names = ("meet",)
    parameters = (parameter("id", "int"), parameter("warps", "int"))

    def effects(self, op: Op) -> Sequence[fx.Effect]:
        return (fx.Rendezvous(op.args["id"], op.args["warps"]),)


PRIMITIVES: dict[str, Primitive] = {
    kind.names[0]: kind()
    for kind in (Put, Get, CopyIn, CopyOut, Commit, Drain, Init, Arrive, Wait, Publish, Meet)
}
