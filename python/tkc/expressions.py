"""Size expressions of the JSON form: a number, a name, or [op, a, b]."""


class NoValue(Exception):
    pass


def _div(a, b):
    if b == 0:
        raise NoValue("division by zero")
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _cdiv(a, b):
    if b == 0:
        raise NoValue("division by zero")
    return -((-a) // b)


_OPS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _div,
    "%": lambda a, b: a - b * _div(a, b),
    "cdiv": _cdiv,
    "min": min,
    "max": max,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "||": lambda a, b: int(bool(a) or bool(b)),
}
_PRECEDENCE = {"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6,
               "%": 6}


def evaluate(e, names):
    """The value; NoValue if there is none. `names` is a mapping."""
    if isinstance(e, int):
        return e
    if isinstance(e, str):
        if e not in names:
            raise NoValue(f"`{e}` has no value")
        return names[e]
    op = e[0]
    if op == "?":
        return evaluate(e[2] if evaluate(e[1], names) else e[3], names)
    if op == "!":
        return int(not evaluate(e[1], names))
    value = _OPS[op](evaluate(e[1], names), evaluate(e[2], names))
    if not -(1 << 63) <= value < 1 << 63:
        raise NoValue("an overflow")
    return value


def text(e, outer=0):
    """As the source has it."""
    if not isinstance(e, list):
        return str(e)
    op = e[0]
    if op == "?":
        return f"({text(e[1])} ? {text(e[2])} : {text(e[3])})"
    if op == "!":
        return "!" + text(e[1], 9)
    if op not in _PRECEDENCE:
        return f"{op}({text(e[1])}, {text(e[2])})"
    inner = _PRECEDENCE[op]
    out = f"{text(e[1], inner)} {op} {text(e[2], inner + 1)}"
    return f"({out})" if inner < outer else out
