"""The functions of a plan under simulation: those of the file, or their doubles."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from types import CodeType, ModuleType
from typing import NoReturn, TypeAlias, TypeVar, cast

from surepipe.actors.consuming.coroutines import Wait, awaited, within
from surepipe.errors import ConfigurationError, words_of
from surepipe.pipelines.calling import failing_only, told_of
from surepipe.pipelines.simulate.ends import as_text, without_addresses
from surepipe.pipelines.simulate.forgotten import and_what_it_leaves
from surepipe.pipelines.simulate.sandbox import Slip, imported_virtually, is_of_another_loop
from surepipe.pipelines.stages import About, StageCall, TimeLimit, made
from surepipe.pipelines.users_code import place_of
from surepipe.queues.book import Later, TooHeavy
from surepipe.simulation.actors.lives import Life
from surepipe.simulation.actors.runtime import SimulatedRuntime
from surepipe.simulation.actors.tasks import Crashed
from surepipe.simulation.events import Touch
from surepipe.simulation.outside import RefusedEffect
from surepipe.simulation.timeline import as_detail, digest_of

Function: TypeAlias = Callable[..., object]


class Functions:
    """Finds functions by their paths. ``given`` goes before everything else."""

    def __init__(
        self, replaced: Mapping[str, str] | None = None, given: Mapping[str, object] | None = None
    ) -> None:
        self._replaced = replaced or {}
        self._given = given or {}
        self.check: Callable[[object], object] | None = None

    def use(self, path: str, function: Function) -> None:
        """From now on what stands at this path, or its double, is this one."""
        self._given = {**self._given, self._replaced.get(path, path): function}

    def find(self, path: str) -> Function:
        """The function, class or double. Raises ConfigurationError that says what is wrong."""
        path = self._replaced.get(path, path)
        found = self._given.get(path)
        return cast("Function", found) if found is not None else imported_virtually(path)


def keeper_of(path: str) -> tuple[ModuleType | type, str]:
    """Where what 'module:name' names is kept (a module, a class), and under which name.

    Raises ConfigurationError, also for what a class has from another one.
    """
    imported_virtually(path)
    module, _, name = path.partition(":")
    *classes, last = name.split(".")
    keeper: ModuleType | type = import_module(module)
    for step in classes:
        keeper = getattr(keeper, step)
    if last not in vars(keeper):
        raise ConfigurationError(f"simulate: replace: {path} is written elsewhere: name that place")
    return keeper, last


def built(life: Life, path: str, found: Function) -> Function:
    """A class as its instance, made as the user's code that it is: in virtual time, and refused what a stage is
    refused. One that can't be made is given back, for whoever asked to say so."""
    if not inspect.isclass(found):
        return found
    world = life.world
    before = world.speaks, world.speaking
    world.speaks, world.speaking = life, path
    try:
        return made(found)
    except Exception:  # noqa: BLE001 - the words for it are those of a real run
        return found
    finally:
        world.speaks, world.speaking = before


def module_of(function: object) -> ModuleType | None:
    """Where a function was written."""
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    return sys.modules.get(getattr(function, "__module__", "") or "")


def globals_in(function: Function) -> Iterator[str]:
    """The globals that the code of a function names, with its module, whether or not they are data."""
    body: object = inspect.unwrap(function)
    codes = [getattr(body, "__code__", None)]
    while codes:
        code = codes.pop()
        if isinstance(code, CodeType):
            yield from (f"{getattr(body, '__module__', '')}.{name}" for name in code.co_names)
            codes += code.co_consts


# How a user's functions are entered under simulation: crash points, injected failures, virtual time.
#
# A process may end before a call, at each use of the context or of an ``Outside`` in it, after it, and then at
# each store call until its effect is settled.


T = TypeVar("T")

WALL_ORIGIN_S = 1_700_000_000


SHOWN = 600
"""So many characters of an answer are kept."""


class InjectedFailure(Exception):
    """The stage fails here, on purpose."""


class VirtualClock:
    """Time as stages of a simulated process see it. Each use is a point at which the process may end."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def now(self) -> float:
        """Seconds since 1970."""
        life = self._life
        us = life.world.now + life.node.wall_jumps_us
        return self._used("reads the clock", lambda: WALL_ORIGIN_S + us / 1_000_000)

    def monotonic(self) -> float:
        """Seconds since the beginning of the run."""
        return self._used("reads the clock", lambda: self._life.world.now / 1_000_000)

    def sleep(self, seconds: float) -> None:
        self._used("sleeps", lambda: self._life.sleep(round(seconds * 1_000_000)))

    def _used(self, how: str, act: Callable[[], T]) -> T:
        life = self._life
        stage = life.world.speaking or "stage"
        return life.at(f"{stage} {how}", act)


class Calls:
    """Enters the functions of one process."""

    def __init__(self, life: Life, told: Callable[[str, About, object], None]) -> None:
        """``told``: of each call its part, what it is about, and the message."""
        self._life = life
        self._world = life.world
        self._told = told
        self._coroutines = SimulatedRuntime(life).coroutines()

    def enter(self, name: str, call: StageCall, message: object) -> object:
        """One call: what it gives, or what it raises."""
        life, about = self._life, call.about
        life.check()
        where = f"{about.seq} of {about.pipe}" if about else "a message"
        took, fails = self._drawn(name, call)
        title = f"{name} {where}"
        trouble = life.trouble_at(title)
        if trouble is not None and trouble.is_end and trouble.point < 0:
            life.meet(trouble)
        is_refused = bool(fails and call.attempt % 2)
        if is_refused and name not in self._world.reaching_out:
            self._fail(name, about, "before it began")
        begun = self._world.now
        if took:
            life.sleep(took)
        result = self._entered(name, call, message, is_refused=is_refused)
        if fails and not call.attempt % 2:
            self._fail(name, about, "after it was done")
        lasted = self._world.now - begun
        if call.limit_s is not None and lasted > call.limit_s * 1_000_000:
            is_slowed = lasted - took <= call.limit_s * 1_000_000
            error = _late(name, call.limit_s)
            self._row(about, "raised", told_of(error), "F21" if is_slowed else "", stage=name)
            raise error
        part = {"part": about.piece} if about and about.piece else {}
        self._row(about, "returned", "", stage=name, answer=short(result), **part)
        if trouble is not None:
            life.meet(trouble)
        return result

    def told(self, name: str, function: Function, message: object) -> object:
        """What a function tells of a message of this part (its key, say): user's code as any other, but no step of
        a run, at which a process may end."""
        world, before = self._world, self._world.speech
        world.speech = self._life, name, world.handling
        try:
            return function(message)
        except Slip:
            self._give_up()
            raise Crashed from None
        finally:
            world.speech = before

    def _drawn(self, name: str, call: StageCall) -> tuple[int, bool]:
        about = call.about
        if about is None:
            return 0, False
        title = self._life.node.named(f"call of {name} {about.seq} of {about.pipe}")
        took, seq = self._world.chooser.handling(Touch(title), about.epoch, about.seq, 1)
        return took, seq > 0

    def _fail(self, name: str, about: About | None, when: str) -> NoReturn:
        self._row(about, "raised", f"fails {when}", "F20", stage=name)
        raise InjectedFailure(f"{name} fails {when}, on purpose")

    def _entered(self, name: str, call: StageCall, message: object, *, is_refused: bool) -> object:
        """``is_refused``: it is to fail at the first thing that it does outside, before that is done."""
        world, life = self._world, self._life
        part = {"part": call.about.piece} if call.about and call.about.piece else {}
        self._row(call.about, "called", "", stage=name, **part)
        if call.about is not None:
            self._told(name, call.about, message)
        before, number = world.speech, world.called(name)
        world.speech = life, name, (call.about.key if call.about else "", number)
        world.refused.update((number,) if is_refused else ())
        try:
            result = awaited(call(message), self._waiting(name, call.limit_s))
        except Crashed:
            raise
        except Slip:
            self._give_up()
            raise Crashed from None
        except KeyboardInterrupt:
            raise
        except RefusedEffect as refusal:
            self._fail(name, call.about, str(refusal))
        except BaseException as error:
            life.check()
            if is_of_another_loop(error):
                self._give_up()
                raise Crashed from None
            told = without_addresses(f"{type(error).__name__}: {words_of(error)}")
            self._row(call.about, "raised", told, stage=name, place=place_of(error))
            with failing_only(name):
                raise
        finally:
            world.speech = before
            world.returned(number)
            is_left = number in world.refused
            world.refused.discard(number)
        life.check()
        if is_left:
            self._fail(name, call.about, "after it was done")
        if not isinstance(result, Later | TooHeavy):
            world.ended_well.add(number)
        return result

    def _waiting(self, name: str, limit_s: float | None) -> Wait:
        """A coroutine that is late is cancelled, as in a run."""

        def wait(call: Awaitable[object]) -> object:
            call = and_what_it_leaves(call, name)
            if limit_s is not None:
                call = within(call, limit_s, partial(_late, name, limit_s))
            return self._coroutines.wait(call)

        return wait

    def _give_up(self) -> None:
        """Nothing can be learned from this run any more: whoever began it is told why when it is over."""
        self._world.limit = "refused"
        self._world.heap.clear()
        self._life.is_alive = False

    def _row(self, about: About | None, kind: str, text: str, fault: str = "", **more: str) -> None:
        if about is None or not self._life.is_alive:
            return
        facts = dict(more)
        if text:
            facts["text"] = text
        if fault:
            facts["fault"] = fault
        end = f"{about.pipe}/receiver"
        if end not in self._life.incarnations:
            return
        self._world.row_of(
            self._life,
            end,
            kind,
            detail=as_detail(facts) if facts else "",
            pipe=f"{about.pipe}@{about.producer}" if about.producer else about.pipe,
            epoch=about.epoch,
            seq=about.seq,
            count=1,
        )


def _late(name: str, limit_s: float) -> TimeLimit:
    return TimeLimit(f"{name} took longer than {limit_s} s")


def short(result: object) -> str:
    """What a stage gave, as far as it is worth comparing; two that differ further on show that they do."""
    text = as_text(result)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 20]} {digest_of(text.encode())}"
