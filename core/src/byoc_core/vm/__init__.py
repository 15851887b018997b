"""The virtual machine: programs as data, their binary form, their laws, and the machine itself."""

from byoc_core.opset.layout import Layout, compact_layout
from byoc_core.vm.disassemble import disassemble
from byoc_core.vm.encoding import FORMAT_VERSION, decode, encode
from byoc_core.vm.instructions import Builtin, Call, CallKind, Goto, If, Instruction, Ret
from byoc_core.vm.machine import ExecutableLike, VirtualMachine
from byoc_core.vm.program import ConstantRef, DynamicTensor, PlannedTensor, Program, View, VMFunction
from byoc_core.vm.verify import verify
from byoc_core.vm.vm_callable import VMCallable

__all__ = [
    "FORMAT_VERSION",
    "Builtin",
    "Call",
    "CallKind",
    "ConstantRef",
    "DynamicTensor",
    "ExecutableLike",
    "Goto",
    "If",
    "Instruction",
    "Layout",
    "PlannedTensor",
    "Program",
    "Ret",
    "VMCallable",
    "VMFunction",
    "View",
    "VirtualMachine",
    "compact_layout",
    "decode",
    "disassemble",
    "encode",
    "verify",
]
