"""Plans as lines of text, from the recorded calls of oneDNN."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from byoc_core.digest import digest_of
from byoc_core.dtypes import dtype_info
from byoc_core.errors import InternalError
from byoc_core.runtime.graph.document import GraphFunction
from byoc_core.runtime.module import NDArray

from byoc_dnnl.arrays import round_up
from byoc_dnnl.calls import shape_of
from byoc_dnnl.capi import Query
from byoc_dnnl.plan import Buffer, CoreStep, Kind, Location, Packing, Plan, Step
from byoc_dnnl.step_numbers import core_step
from byoc_dnnl.stored.fingerprints import fingerprint
from byoc_dnnl.stored.recording import Pointer, RecordedArgument, RecordedObject, Recorder

__all__ = ["plan_lines"]

_CREATE = "_primitive_desc_create"


def plan_lines(
    plan: Plan,
    function: GraphFunction,
    recorder: Recorder,
    constants: Mapping[str, NDArray],
    *,
    num_threads: int,
    planned_for: int,
) -> tuple[list[str], dict[str, NDArray]]:
    """Return the lines of a plan, and the cited constants by digest.

    Args:
        plan: a plan made with the recorder.
        function: the planned function, without symbols.
        recorder: the recorder of the plan's objects.
        constants: arrays by the digests of the plan.
        num_threads: the number of threads of a call.
        planned_for: the number of threads of the plan.
    """
    writer = _PlanWriter(plan, recorder, constants)
    writer.write_steps()
    values = function.values
    tensors = [(spec.dtype, shape_of(values[id_])) for id_, spec in enumerate(function.inputs)]
    tensors += [(values[id_].dtype, shape_of(values[id_])) for _, id_ in function.outputs]
    head = [f"plan {num_threads} {int(planned_for < num_threads)} {writer.arena_nbytes}"]
    for dtype, shape in tensors:
        info = dtype_info(dtype)
        head.append(_joined("tensor", int(info.dl_code), info.bits, len(shape), *shape))
    return [*head, *writer.lines, "end"], writer.constants


def _joined(word: str, *numbers: object) -> str:
    return " ".join([word, *map(str, numbers)])


def _float_bits(number: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", number))[0])


class _PlanWriter:
    """The lines of a plan's objects and steps; an object is written before the first line with its number."""

    def __init__(self, plan: Plan, recorder: Recorder, constants: Mapping[str, NDArray]) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, NDArray] = {}
        self._plan, self._recorder, self._arrays = plan, recorder, constants
        self._descs: dict[int, int] = {}
        self._desc_lines: dict[str, int] = {}
        self._primitives: dict[int, int] = {}
        self._primitive_lines: dict[str, int] = {}
        self._cited: dict[str, int] = {}
        self._packed: dict[Buffer, int] = {}
        self._locations: dict[Location, int] = {}
        self._packings = {packing.target.buffer: packing for packing in plan.packings}
        self._numbers, self._storage = plan.lay_out()
        self.arena_nbytes = round_up(self._storage.total)

    def write_steps(self) -> None:
        """Write all steps."""
        for step in self._plan.steps:
            self.lines.append(self._execute(step) if isinstance(step, Step) else self._core_step(step))

    def _execute(self, step: Step) -> str:
        primitive = self._primitive(step.desc.pointer.value)
        fields: list[int] = []
        for argument, location in step.arguments.items():
            api = step.desc.api
            layout = api.ask("dnnl_primitive_desc_query_md", step.desc, Query.EXEC_ARG_MD, argument)
            fields += [int(argument), self._location(location), fingerprint(api, layout)]
        return _joined("execute", primitive, len(step.arguments), *fields)

    def _core_step(self, step: CoreStep) -> str:
        word, fields = core_step(step, [self._location(location) for location in step.locations])
        numbers: list[object] = []
        for field in fields:
            if isinstance(field, tuple):
                numbers += field
            elif isinstance(field, int):
                numbers.append(int(field))  # flags too
            else:
                numbers.append(_float_bits(field) if isinstance(field, float) else field)
        return _joined(word, *numbers)

    def _location(self, location: Location) -> int:
        if location not in self._locations:
            desc, memory = self._desc(location.desc.pointer.value), self._memory(location.buffer)
            self.lines.append(_joined("location", *memory, desc))
            self._locations[location] = len(self._locations)
        return self._locations[location]

    def _memory(self, buffer: Buffer) -> Sequence[object]:
        if buffer.kind is Kind.ARGUMENT:
            return "argument", buffer.index
        if buffer.kind is Kind.ARENA:
            return "arena", self._storage.offsets[self._numbers[buffer]], buffer.nbytes
        if buffer.kind is Kind.PACKED:
            return "packed", self._pack(self._packings[buffer])
        return "constant", self._constant(buffer)

    def _constant(self, buffer: Buffer) -> int:
        array = buffer.read(self._arrays[buffer.digest])
        digest = digest_of(array)
        if digest not in self._cited:
            self.lines.append(_joined("constant", digest))
            self._cited[digest] = len(self._cited)
            self.constants[digest] = array
        return self._cited[digest]

    def _pack(self, packing: Packing) -> int:
        buffer = packing.target.buffer
        if buffer not in self._packed:
            primitive, source = self._primitive(packing.desc.pointer.value), self._location(packing.source)
            target = self._desc(packing.target.desc.pointer.value)
            self.lines.append(_joined("pack", primitive, source, target))
            self._packed[buffer] = len(self._packed)
        return self._packed[buffer]

    def _record_of(self, pointer: int | None) -> RecordedObject:
        if not pointer or pointer not in self._recorder.objects:
            raise InternalError("stored plans", "use an object that was not recorded", got=f"{pointer or 0:#x}")
        return self._recorder.objects[pointer]

    def _desc(self, pointer: int | None) -> int:
        record = self._record_of(pointer)
        if record.function == "dnnl_memory_desc_clone":
            return self._desc(_pointer_of(record.arguments[0]))
        assert pointer is not None
        if pointer not in self._descs:
            self._descs[pointer] = self._add(self._desc_line(record), self._desc_lines)
        return self._descs[pointer]

    def _add(self, line: str, numbers: dict[str, int]) -> int:
        """Return the number of the object made by a line; equal lines make equal objects."""
        if line not in numbers:
            self.lines.append(line)
            numbers[line] = len(numbers)
        return numbers[line]

    def _desc_line(self, record: RecordedObject) -> str:
        if record.function in ("dnnl_memory_desc_create_with_strides", "dnnl_memory_desc_create_with_tag"):
            rank, sizes, dtype, strides_or_tag = record.arguments
            count = _number_of(rank)
            is_strided = isinstance(strides_or_tag, tuple)
            strides = _numbers_of(strides_or_tag, count) if is_strided else ()
            word = "strided" if is_strided else "any"
            return _joined(word, _number_of(dtype), count, *_numbers_of(sizes, count), *strides)
        if record.function == "dnnl_primitive_desc_query_md":
            primitive, query, index = record.arguments
            return _joined("queried", self._primitive(_pointer_of(primitive)), query, index)
        base, *numbers = record.arguments
        number = self._desc(_pointer_of(base))
        if record.function == "dnnl_memory_desc_permute_axes":
            (axes,) = numbers
            assert isinstance(axes, tuple)
            return _joined("permuted", number, len(axes), *axes)
        if record.function == "dnnl_memory_desc_reshape":
            rank, sizes = numbers
            return _joined("reshaped", number, rank, *_numbers_of(sizes, _number_of(rank)))
        if record.function != "dnnl_memory_desc_create_submemory":
            raise InternalError("stored plans", "use a description made in an unknown way", got=record.function)
        sizes, starts = numbers
        assert isinstance(sizes, tuple)
        count = next((axis for axis, size in enumerate(sizes) if size == 0), len(sizes))
        return _joined("part", number, count, *_numbers_of(sizes, count), *_numbers_of(starts, count))

    def _optional_desc(self, pointer: int) -> int:
        return self._desc(pointer) if pointer else -1

    def _primitive(self, pointer: int | None) -> int:
        record = self._record_of(pointer)
        assert pointer is not None
        if pointer not in self._primitives:
            *arguments, attributes = record.arguments
            number_passed = sum(name == "dnnl_primitive_desc_next_impl" for name, _ in record.changes)
            kind = record.function.removeprefix("dnnl_").removesuffix(_CREATE).removesuffix("_forward")
            extras = self._attributes(attributes)
            parameters = [number for argument in arguments for number in self._parameter(argument)]
            line = _joined("primitive", kind, number_passed, *extras, *parameters)
            self._primitives[pointer] = self._add(line, self._primitive_lines)
        return self._primitives[pointer]

    def _parameter(self, argument: RecordedArgument) -> list[int]:
        if isinstance(argument, tuple):
            if any(isinstance(item, Pointer) for item in argument):
                return [len(argument), *map(self._desc, argument)]
            while argument and argument[-1] == 0:
                argument = argument[:-1]
            return [len(argument), *argument]
        if not isinstance(argument, Pointer):
            return [int(argument)]
        is_engine = argument in self._recorder.objects and self._record_of(argument).function == "dnnl_engine_create"
        return [] if is_engine else [self._optional_desc(argument)]

    def _attributes(self, pointer: RecordedArgument) -> list[int]:
        assert isinstance(pointer, Pointer)
        post_ops: list[Sequence[int]] = []
        scales: list[Sequence[int]] = []
        zero_points: list[Sequence[int]] = []
        for name, arguments in self._record_of(pointer).changes:
            if name == "dnnl_primitive_attr_set_post_ops":
                post_ops += [self._post_op(*change) for change in self._record_of(_pointer_of(arguments[0])).changes]
            elif name == "dnnl_primitive_attr_set_scales_mask":
                scales.append([_number_of(argument) for argument in arguments])
            elif name == "dnnl_primitive_attr_set_zero_points_mask":
                zero_points.append([_number_of(arguments[0])])
        lists = (post_ops, scales, zero_points)
        return [number for items in lists for number in (len(items), *(n for item in items for n in item))]

    def _post_op(self, name: str, arguments: Sequence[RecordedArgument]) -> Sequence[int]:
        if name == "dnnl_post_ops_append_sum":
            return 0, 0, 0, -1
        if name == "dnnl_post_ops_append_eltwise":
            algorithm, alpha, beta = map(_number_of, arguments)
            return algorithm, alpha, beta, -1
        return _number_of(arguments[0]), 0, 0, self._desc(_pointer_of(arguments[1]))


def _pointer_of(argument: RecordedArgument) -> Pointer:
    assert isinstance(argument, Pointer)
    return argument


def _number_of(argument: RecordedArgument) -> int:
    assert isinstance(argument, int)
    return int(argument)


def _numbers_of(argument: RecordedArgument, count: int) -> tuple[int, ...]:
    assert isinstance(argument, tuple)
    return argument[:count]
