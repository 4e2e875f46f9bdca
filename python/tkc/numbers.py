"""Floating-point numbers that a program computes at launch (src/driver/manifest.h): [op, dtype, n..] in f64, rounded to the
dtype after every op."""
import math
import struct

from .expressions import NoValue


def _rounded(dtype, x):
    if dtype in ("f16", "bf16"):
        raise ValueError(f"numbers of type {dtype} are unknown to this loader")
    if dtype != "f32":  # f64, or an integer or a condition, which are whole
        return x
    try:
        return struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def _guarded(f):
    def g(*x):
        try:
            return f(*x)
        except (ValueError, ZeroDivisionError):
            return math.nan
        except OverflowError:
            return math.inf
    return g


def _divide(a, b):
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def _log(f):
    return lambda x: -math.inf if x == 0 else f(x)


_OPS = {
    "neg": lambda x: -x, "abs": abs, "!": lambda x: float(x == 0), "exp": math.exp, "exp2": lambda x: 2.0**x,
    "log": _log(math.log), "log2": _log(math.log2), "sqrt": math.sqrt, "rsqrt": lambda x: _divide(1.0, math.sqrt(x)),
    "rcp": lambda x: _divide(1.0, x), "tanh": math.tanh, "round": lambda x: x,
    "floor": lambda x: float(math.floor(x)) if math.isfinite(x) else x,
    "ceil": lambda x: float(math.ceil(x)) if math.isfinite(x) else x,
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": _divide,
    "min": lambda a, b: b if b < a else a, "max": lambda a, b: b if b > a else a,
    "==": lambda a, b: float(a == b), "!=": lambda a, b: float(a != b), "<": lambda a, b: float(a < b),
    "<=": lambda a, b: float(a <= b), ">": lambda a, b: float(a > b), ">=": lambda a, b: float(a >= b),
    "&&": lambda a, b: float(a != 0 and b != 0), "||": lambda a, b: float(a != 0 or b != 0),
}


def _apply(op, dtype, x):
    return _rounded(dtype, _guarded(_OPS[op])(*x))


class _Missing:
    """A side of a choice that has no number: an error only if it is chosen."""

    def __init__(self, error):
        self.error = error


def _side(n, integer):
    try:
        return settled(n, integer)
    except (NoValue, ValueError, ArithmeticError) as e:
        return _Missing(e)


def settled(n, integer):
    """With integers and constants evaluated: a number; or, where a scalar is in it, a tuple, of which evaluate() makes a
    number at every call. `integer` evaluates an expression."""
    if isinstance(n, (int, float)):
        return float(n)
    if isinstance(n, dict):
        if "scalar" in n:
            return (n["scalar"],)
        return float(integer(n["integer"])) if "integer" in n else float(n["number"])
    op, dtype = n[0], n[1]
    if op == "?":
        cond = settled(n[2], integer)
        if not isinstance(cond, tuple):
            side = settled(n[3 if cond else 4], integer)
            return side if isinstance(side, tuple) else _rounded(dtype, side)
        return ((op, dtype, cond, _side(n[3], integer), _side(n[4], integer)),)
    args = [settled(a, integer) for a in n[2:]]
    if any(isinstance(a, tuple) for a in args):
        return ((op, dtype, *args),)
    return _apply(op, dtype, args)


def evaluate(v, scalar):
    """The number of what settled() gave; `scalar` gives that of a name."""
    if isinstance(v, _Missing):
        raise v.error
    if not isinstance(v, tuple):
        return v
    if isinstance(v[0], str):
        return float(scalar(v[0]))
    op, dtype, *args = v[0]
    if op == "?":
        return _rounded(dtype, evaluate(args[1] if evaluate(args[0], scalar) else args[2], scalar))
    return _apply(op, dtype, [evaluate(a, scalar) for a in args])
