"""A calculator for text written by a model: decimal arithmetic, nothing of Python, bounded in size and time."""

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, DecimalException, localcontext

MAX_CHARACTERS = 500
MAX_DEPTH = 50
MAX_EXPONENT = 1000

_CONTEXT = Context(prec=50, Emax=9999, Emin=-9999)
_TOKEN = re.compile(r"\s*(?:(\d[\d_]*\.?\d*(?:[eE][+-]?\d{1,4})?|\.\d+)|([A-Za-z]+\d*)|(\*\*|//|[-+*/%^(),]))")
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})
_CONSTANTS = {
    "pi": Decimal("3.1415926535897932384626433832795028841971693993751"),
    "e": Decimal("2.7182818284590452353602874713526624977572470936999596"),
}


class CannotCalculate(ValueError):
    """Why an expression has no result, as a sentence."""


def calculate(expression: str) -> str:
    """The result as decimal text: whole numbers up to 50 digits exactly, others to 28. Raises CannotCalculate.

    Knows + - * / // % ** (or ^), parentheses, pi, e, and abs, ceil, exp, floor, ln, log10, max, min, round, sqrt.
    """
    if len(expression) > MAX_CHARACTERS:
        raise CannotCalculate(f"The expression is longer than {MAX_CHARACTERS} characters.")
    with localcontext(_CONTEXT):
        try:
            return _written(_Reader(expression.translate(_SPELLINGS)).whole())
        except DecimalException as error:
            raise CannotCalculate(_reason(error)) from None


def _reason(error: DecimalException) -> str:
    if isinstance(error, ZeroDivisionError):
        return "Division by zero has no result."
    if isinstance(error, OverflowError) or type(error).__name__ == "Overflow":
        return "The result is too large."
    return "This has no result among the real numbers."


def _written(value: Decimal) -> str:
    if value == value.to_integral_value() and value.adjusted() < _CONTEXT.prec:
        return format(value.quantize(Decimal(1)) + 0, "f")
    value = Context(prec=28).plus(value).normalize()
    return format(value, "f") if -20 < value.adjusted() < 28 else str(value)


class _Reader:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str):
        self.tokens, self.at, self.depth = _tokens(text), 0, 0

    def whole(self) -> Decimal:
        if not self.tokens:
            raise CannotCalculate("There is nothing to calculate.")
        value = self.sum()
        if self.at < len(self.tokens):
            raise CannotCalculate(f"{self.tokens[self.at]!r} is not expected there.")
        return value

    def sum(self) -> Decimal:
        value = self.product()
        while operator := self.take("+", "-"):
            other = self.product()
            value = value + other if operator == "+" else value - other
        return value

    def product(self) -> Decimal:
        value = self.signed()
        while operator := self.take("*", "/", "//", "%"):
            value = _multiplied(operator, value, self.signed())
        return value

    def signed(self) -> Decimal:
        with _Deeper(self):
            if operator := self.take("+", "-"):
                value = self.signed()
                return -value if operator == "-" else value
            return self.power()

    def power(self) -> Decimal:
        base = self.atom()
        return _raised(base, self.signed()) if self.take("**", "^") else base

    def atom(self) -> Decimal:
        token = self.next()
        if token[0].isdigit() or token[0] == ".":
            return Decimal(token.replace("_", ""))
        if token == "(":
            value = self.sum()
            self.expect(")")
            return value
        if token.lower() in _CONSTANTS:
            return _CONSTANTS[token.lower()]
        if token[0].isalpha():
            return self.call(token.lower())
        raise CannotCalculate(f"{token!r} is not expected there.")

    def call(self, name: str) -> Decimal:
        if name not in _FUNCTIONS:
            raise CannotCalculate(f"{name} is not known. Known: {', '.join(sorted(_FUNCTIONS))}.")
        self.expect("(")
        values = [self.sum()]
        while self.take(","):
            values.append(self.sum())
        self.expect(")")
        function, fewest, most = _FUNCTIONS[name]
        if not fewest <= len(values) <= most:
            raise CannotCalculate(f"{name} takes another number of values.")
        return function(*values)

    def take(self, *wanted: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in wanted:
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def next(self) -> str:
        if self.at == len(self.tokens):
            raise CannotCalculate("The expression ends too early.")
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, wanted: str) -> None:
        if not self.take(wanted):
            raise CannotCalculate(f"{wanted!r} is missing.")


class _Deeper:
    def __init__(self, reader: _Reader):
        self.reader = reader

    def __enter__(self):
        self.reader.depth += 1
        if self.reader.depth > MAX_DEPTH:
            raise CannotCalculate("The expression is nested too deeply.")

    def __exit__(self, *_):
        self.reader.depth -= 1


def _tokens(text: str) -> list[str]:
    found, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise CannotCalculate(f"{text[at:].strip()[0]!r} is not understood.")
        found.append(match[1] or match[2] or match[3])
        at = match.end()
    return found


def _multiplied(operator: str, one: Decimal, other: Decimal) -> Decimal:
    if operator == "*":
        return one * other
    if operator == "/":
        return one / other
    # As people and Python divide: towards minus infinity; the remainder has the divisor's sign.
    whole = (one / other).to_integral_value(rounding=ROUND_FLOOR)
    return whole if operator == "//" else one - whole * other


def _raised(base: Decimal, exponent: Decimal) -> Decimal:
    if abs(exponent) > MAX_EXPONENT:
        raise CannotCalculate(f"Exponents larger than {MAX_EXPONENT} are refused.")
    if base == 0 and exponent == 0:
        return Decimal(1)
    return base**exponent


def _rounded(value: Decimal, places: Decimal = Decimal(0)) -> Decimal:
    if places != places.to_integral_value() or abs(places) > 20:
        raise CannotCalculate("round takes a whole number of places, 20 at most.")
    return value.quantize(Decimal(1).scaleb(-int(places)), rounding=ROUND_HALF_UP)


# name: (function, fewest values, most values)
_FUNCTIONS = {
    "abs": (abs, 1, 1),
    "ceil": (lambda value: value.to_integral_value(rounding=ROUND_CEILING), 1, 1),
    "exp": (Decimal.exp, 1, 1),
    "floor": (lambda value: value.to_integral_value(rounding=ROUND_FLOOR), 1, 1),
    "ln": (Decimal.ln, 1, 1),
    "log10": (Decimal.log10, 1, 1),
    "max": (max, 1, 50),
    "min": (min, 1, 50),
    "round": (_rounded, 1, 2),
    "sqrt": (Decimal.sqrt, 1, 1),
}
