"""The ledger: failures of one cause have one signature, whatever names and numbers the kernel used."""

from __future__ import annotations

from cake.evaluate.verdict import Verdict
from cake.evolve.ledger import is_case, normalize, signature


def failed(message: str, **given: str) -> Verdict:
    fields = {"stage": "machine", "code": "sync/x", "message": message, "primitive": "tma_load", **given}
    return Verdict(ok=False, **fields)


def test_names_and_numbers_do_not_tell_failures_apart() -> None:
    first = failed("`at` is read before stage 2 of 'full' has 16384 bytes")
    second = failed("`bt` is read before stage 0 of 'ring' has 0x20 bytes")
    assert signature(first) == signature(second)
    assert signature(first).id == signature(second).id
    assert normalize(first.message) == "· is read before stage · of · has · bytes"


def test_stage_code_instruction_and_words_do() -> None:
    base = failed("it is read")
    others = (
        failed("it is written"),
        failed("it is read", stage="rules"),
        failed("it is read", code="sync/y"),
        failed("it is read", primitive="wgmma"),
    )
    assert len({signature(v).id for v in (base, *others)}) == 5


def test_a_case_recurs_in_kernels_of_different_descent_and_is_caught_late() -> None:
    assert is_case("machine", 3, 2)
    assert not is_case("rules", 30, 20)
    assert not is_case("machine", 2, 2)
    assert not is_case("timing", 30, 1)
