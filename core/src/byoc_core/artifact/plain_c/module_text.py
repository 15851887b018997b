"""A source of generated C as part of exported C: the functions over plain pointers, under names of the model."""

from __future__ import annotations

import re
from collections.abc import Mapping

from byoc_core.errors import CodegenError
from byoc_core.native.plain_c import PLAIN_C
from byoc_core.runtime.csource import CSourceModule

__all__ = ["module_text"]

_OUTER = re.compile(rf"(?ms)^#ifndef {PLAIN_C}$.*?^#endif$")
_HEAD = re.compile(r"(?m)^(BYOC_EXPORT int32_t (\w+)\()([^{]*)(\)) \{$")
_FUNCTION = re.compile(r"(?ms)^((?:BYOC_EXPORT|static) [\w *]*?(\w+)\()([^{};]*)(\)) \{$(.*?^\}$)")
"""A function: the text up to the parameters, the name, the parameters, the parenthesis, the body."""
_TABLE = re.compile(r"(?m)^BYOC_CONSTANT_TABLE\(\d+\);\n")
_PARAMETER = "const void *const *byoc_constants"


def module_text(
    module: CSourceModule, renamed: Mapping[tuple[str, str], str], table: str, *, takes_constants: bool
) -> str:
    """Return the text of a C file.

    Args:
        module: the source.
        renamed: the names of the generated functions, by symbol and end.
        table: the name of the table of pointers to constants.
        takes_constants: whether the functions take this table as the first argument.

    Raises:
        CodegenError: functions without this argument use constants.
    """
    # The first line of a long text asks for several translation units; here the text is one.
    source = re.sub(r"\A#define BYOC_NUM_UNITS \d+\n", "", module.get_source("c"))
    macros = [f"#define {symbol}{end} {name}" for (symbol, end), name in renamed.items()]
    if module.constants and takes_constants:
        source = _with_parameter(module, source)
    elif module.constants:
        macros.append(f"#define byoc_constants {table}")
    heads = (f"{head}{parameters}{end};" for head, _, parameters, end in _HEAD.findall(_OUTER.sub("", source)))
    includes = ('#include "byoc_ffi.h"', '#include "byoc_scalar.h"')
    return "\n".join([f"#define {PLAIN_C} 1", *macros, *includes, *heads, source])


def _with_parameter(module: CSourceModule, source: str) -> str:
    """Return a source with the table of constants as the first parameter of all functions in need of the table.

    These are the functions over plain pointers, and static functions with constants in their text, or in the text of
    functions called by these.
    """
    plain = _OUTER.sub("", _TABLE.sub("", source))
    bodies = {match[2]: match[5] for match in _FUNCTION.finditer(plain)}
    users = {f"{symbol}_" for symbol in module.function_names}
    words = {name: set(re.findall(r"\w+", body)) for name, body in bodies.items()}
    num_found = 0
    while num_found != len(users):
        num_found = len(users)
        users |= {name for name, found in words.items() if found & {"byoc_constants", *users}}
    call = re.compile(rf"\b({'|'.join(map(re.escape, sorted(users)))})\((\s*\))?")

    def add(match: re.Match[str]) -> str:
        head, name, parameters, end, body = match.groups()
        if name not in users:
            return match[0]
        rest = "" if parameters == "void" else f", {parameters}"
        passed = call.sub(lambda found: f"{found[1]}(byoc_constants{found[2] or ', '}", body)
        return f"{head}{_PARAMETER}{rest}{end} {{\n  (void)byoc_constants;{passed}"

    left = _FUNCTION.sub(lambda match: call.sub("", match[5]) if match[2] in users else match[0], plain)
    names = "|".join(map(re.escape, sorted(users)))
    if re.search(rf"\b({names})\b", left) or "byoc_constants" in _FUNCTION.sub("", plain):
        raise CodegenError(
            f"source of {', '.join(f'`{symbol}`' for symbol in module.function_names)}",
            "uses constants outside of functions, or passes pointers to functions with constants",
            expected="another form of constants than `file`",
        )
    return _FUNCTION.sub(add, _TABLE.sub("", source))
