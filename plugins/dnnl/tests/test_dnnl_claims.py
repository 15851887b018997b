"""Kept primitives are created once, although several threads plan the same sizes at the same time."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from byoc_dnnl import creation, primitive_cache
from byoc_dnnl.creation import Creation
from byoc_dnnl.engine import open_engine
from byoc_dnnl.extension import extension, extension_status
from byoc_dnnl.handles import Primitive, PrimitiveDesc
from byoc_dnnl.library import load_library
from byoc_dnnl.plan import Step
from byoc_dnnl.primitive_cache import claim_primitive, keep_primitive, primitive_of, release_claims
from byoc_dnnl.program import Program

from plugins.dnnl.tests.dnnl_region import need_avx512
from plugins.dnnl.tests.test_dnnl_creation import convolution

pytestmark = [
    pytest.mark.skipif(extension() is None, reason=extension_status()),
    pytest.mark.skipif(load_library().runtime.name != "OPENMP", reason="oneDNN has a single thread"),
]


class _Owner:
    """An owner of claims."""


def _new_desc(images: int) -> PrimitiveDesc:
    """Return the descriptor of a convolution to be kept, not created yet; each number of images is for one test."""
    need_avx512()
    built = convolution()
    choice = built._best_plan(1, built._forms.at({"n": images}))
    assert choice is not None
    (desc,) = (s.desc for s in choice.plan.steps if isinstance(s, Step) and s.desc.recipe is not None)
    assert desc.recipe not in primitive_cache._PRIMITIVES
    return desc


def test_two_plans_at_once_create_each_kept_primitive_once() -> None:
    need_avx512()
    regions = [convolution(), convolution()]
    shapes = ((23, 32, 20, 20),) * 2
    both_planned = threading.Barrier(2, timeout=60)
    created: Counter[Hashable] = Counter()
    finish, init = Creation.finish, Primitive.__init__

    def finish_together(self: Creation) -> Any:
        both_planned.wait()
        return finish(self)

    def keep(desc: PrimitiveDesc, primitive: Primitive) -> Primitive:
        created[desc.recipe] += 1
        return keep_primitive(desc, primitive)

    def create(self: Primitive, desc: PrimitiveDesc) -> None:
        created[desc.recipe] += 1
        init(self, desc)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Creation, "finish", finish_together)
        patch.setattr(creation, "keep_primitive", keep)
        patch.setattr(Primitive, "__init__", create)
        with ThreadPoolExecutor(2) as pool:
            programs = list(pool.map(lambda region: region.program(2, shapes), regions))
    kept = {recipe: count for recipe, count in created.items() if recipe is not None}
    assert set(kept.values()) == {1}
    first, second = (program.primitives for program in programs if isinstance(program, Program))
    assert set(map(id, first)) & set(map(id, second))


def _is_pending(desc: PrimitiveDesc) -> bool:
    assert desc.recipe is not None
    claim = primitive_cache._CLAIMS.get(desc.recipe)
    return claim is not None and claim.is_pending()


def _take_beside(desc: PrimitiveDesc, end_claim: Callable[[], object]) -> Primitive:
    """Ask for a claimed primitive in another thread, end the claim, and return the primitive."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(primitive_of, desc)
        with pytest.raises(TimeoutError):
            asked.result(timeout=0.2)
        end_claim()
        return asked.result(timeout=60)


def test_a_claim_excludes_others_until_released() -> None:
    desc, owner = _new_desc(24), _Owner()
    assert claim_primitive(desc, owner)
    assert not claim_primitive(desc, _Owner())
    found = _take_beside(desc, lambda: release_claims(owner))  # not kept by the owner, as after a canceled creation
    assert found is primitive_of(desc)
    assert not claim_primitive(desc, owner)


def test_a_waiting_plan_gets_the_primitive_of_the_owner() -> None:
    desc, owner, created = _new_desc(25), _Owner(), list[Primitive]()
    assert claim_primitive(desc, owner)

    def end_claim() -> None:
        created.append(keep_primitive(desc, Primitive(desc)))
        release_claims(owner)

    assert _take_beside(desc, end_claim) is created[0]


def test_a_claim_ends_with_its_owner() -> None:
    desc, owners = _new_desc(26), [_Owner()]
    assert claim_primitive(desc, owners[0])
    _take_beside(desc, owners.clear)


def test_a_claim_held_too_long_is_not_waited_for() -> None:
    desc, owner = _new_desc(27), _Owner()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(primitive_cache, "_LONGEST_CLAIM_S", 0.3)
        assert claim_primitive(desc, owner)
        assert _is_pending(desc)
        primitive_of(desc)
        assert not _is_pending(desc)
    release_claims(owner)


def test_a_primitive_created_beside_another_is_not_destroyed() -> None:
    desc, owner = _new_desc(31), _Owner()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(primitive_cache, "_LONGEST_CLAIM_S", 0.0)
        assert claim_primitive(desc, owner)
    used, late = primitive_of(desc), Primitive(desc)
    reference, num_spares = weakref.ref(late), len(primitive_cache._SPARES)
    assert keep_primitive(desc, late) is used
    del late
    gc.collect()
    assert reference() in primitive_cache._SPARES
    assert keep_primitive(desc, used) is primitive_of(desc) is used
    assert len(primitive_cache._SPARES) == num_spares + 1
    release_claims(owner)


class _InterruptedQueue:
    """A queue in a thread interrupted while the primitives are waited for."""

    def finish(self, is_canceled: bool = False) -> list[tuple[int, int]]:
        del is_canceled
        raise KeyboardInterrupt


@pytest.mark.parametrize(("end", "images"), [(Creation.finish, 32), (Creation.close, 33)])
def test_an_interrupted_plan_releases_its_claims(end: Callable[[Creation], object], images: int) -> None:
    desc, queue = _new_desc(images), _InterruptedQueue()
    interrupted = Creation(open_engine(), queue)  # type: ignore[arg-type]
    assert claim_primitive(desc, interrupted)
    with pytest.raises(KeyboardInterrupt):
        end(interrupted)
    assert desc.recipe not in primitive_cache._CLAIMS
    interrupted.close()  # as by the caller: nothing is left to end


def test_a_call_after_an_interrupted_call_waits_for_no_claim() -> None:
    need_avx512()
    region, shapes, finish = convolution(), ((34, 32, 20, 20),) * 2, Creation.finish

    def interrupt(self: Creation) -> Any:
        self._queue = _InterruptedQueue()  # type: ignore[assignment]
        return finish(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Creation, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt) as raised:
            region.program(2, shapes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(primitive_cache._Claim, "wait", lambda _: pytest.fail("a claim of the interrupted call is left"))
        assert isinstance(region.program(2, shapes), Program)
    assert raised.value.__traceback__ is not None  # holds the interrupted plan until here


def test_ended_claims_are_forgotten() -> None:
    descs, owners = [_new_desc(28), _new_desc(29)], [_Owner(), _Owner()]
    for desc, owner in zip(descs, owners, strict=True):
        assert claim_primitive(desc, owner)
    first, second = (desc.recipe for desc in descs)
    release_claims(owners[0])
    assert first not in primitive_cache._CLAIMS
    assert second in primitive_cache._CLAIMS
    owners.clear()
    del owner
    release_claims(_Owner())
    assert second not in primitive_cache._CLAIMS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_does_not_wait_for_claims_of_its_parent() -> None:
    desc, owner = _new_desc(30), _Owner()
    assert claim_primitive(desc, owner)
    child = os.fork()
    if child == 0:
        os._exit(int(_is_pending(desc)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _is_pending(desc)
    release_claims(owner)
