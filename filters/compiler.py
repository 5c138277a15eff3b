"""From an expression to a program: lark's LALR parser over RocketMQ's grammar (`SelectorParser.jj` of 5.3.3).

RocketMQ's parser does not look for the end of its input. It ignores text behind a complete condition, as in
`a = 1 b`. The loop over tokens here stops at the first token that cannot follow, and asks the parser if the condition
is complete.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken, VisitError
from lark.parsers.lalr_interactive_parser import InteractiveParser
from lark.visitors import Transformer_NonRecursive

from ringmq.filters.errors import FilterError
from ringmq.filters.operands import Builder, Operand
from ringmq.filters.program import NESTING_MAX, TEXT_BYTES_MAX, TOKENS_MAX, Op, Program
from ringmq.filters.values import INT_MAX, LONG_MAX, Int, Long

STEP_TOKENS = 256
_GRAMMAR = r"""
start: disjunction
?disjunction: conjunction
    | disjunction _OR conjunction -> either
?conjunction: equality
    | conjunction _AND equality -> both
?equality: comparison
    | equality "=" comparison -> equal
    | equality "<>" comparison -> not_equal
    | equality _IS _NULL -> is_null
    | equality _IS _NOT _NULL -> is_not_null
?comparison: unary
    | comparison ORDER unary -> ordered
    | comparison _BETWEEN unary _AND unary -> between
    | comparison _NOT _BETWEEN unary _AND unary -> not_between
    | comparison _IN "(" _texts ")" -> listed
    | comparison _NOT _IN "(" _texts ")" -> not_listed
    | comparison _search TEXT -> searched
    | comparison _NOT _search TEXT -> not_searched
_search: CONTAINS | STARTSWITH | ENDSWITH
_texts: TEXT | _texts "," TEXT
?unary: primary
    | "+" unary -> plus
    | "-" unary -> negate
    | _NOT unary -> invert
?primary: TEXT -> text
    | DECIMAL -> decimal
    | FLOAT -> floating
    | _TRUE -> true
    | _FALSE -> false
    | _NULL -> null
    | NAME -> property
    | "(" disjunction ")"

_NOT: "NOT"i
_AND: "AND"i
_OR: "OR"i
_BETWEEN: "BETWEEN"i
_IN: "IN"i
_TRUE: "TRUE"i
_FALSE: "FALSE"i
_NULL: "NULL"i
_IS: "IS"i
CONTAINS: "CONTAINS"i
STARTSWITH: "STARTSWITH"i
ENDSWITH: "ENDSWITH"i
ORDER: />=|<=|>|<(?!>)/
FLOAT.2: /[0-9]+\.[0-9]*(?:e[+-]?[0-9]+)?|\.[0-9]+(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+/i
DECIMAL.1: /0|[1-9][0-9]*l?/i
TEXT: /'(?:''|[^'])*'/
NAME: /[a-z_$][a-z0-9_$]*/i
BLANK: /[ \t\n\r\f]+/
LINE_COMMENT.3: /(?<!-)--[^\n\r]*+(?:\r\n|\n|\r)/
BLOCK_COMMENT.3: /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//
%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""
_PARSER = Lark(_GRAMMAR, parser="lalr", lexer="basic", g_regex_flags=re.ASCII)
_ORDERS = {">": Op.GREATER, ">=": Op.GREATER_EQUAL, "<": Op.LESS, "<=": Op.LESS_EQUAL}
_SEARCHES = {"CONTAINS": Op.CONTAINS, "STARTSWITH": Op.STARTS, "ENDSWITH": Op.ENDS}
_INVERTED = {Op.CONTAINS: Op.NOT_CONTAINS, Op.STARTS: Op.NOT_STARTS, Op.ENDS: Op.NOT_ENDS}


Parts = list[Any]
"""Operands and tokens of one rule."""


class _Actions(Transformer_NonRecursive[Token, Operand]):
    """The builder's calls, by rule of the grammar."""

    def __init__(self, builder: Builder) -> None:
        super().__init__()
        self._builder = builder
        self.either, self.both, self.equal = _spread(builder.either), _spread(builder.both), _spread(builder.equal)
        self.is_null, self.negate, self.invert = (
            _spread(builder.is_null), _spread(builder.negate), _spread(builder.invert),
        )  # fmt: skip
        self.between, self.not_between = _spread(builder.between), _spread(builder.not_between)

    def start(self, parts: Parts) -> Operand:
        operand: Operand = parts[0]
        return operand

    plus = start

    def not_equal(self, parts: Parts) -> Operand:
        return self._builder.invert(self._builder.equal(*parts))

    def is_not_null(self, parts: Parts) -> Operand:
        return self._builder.invert(self._builder.is_null(*parts))

    def ordered(self, parts: Parts) -> Operand:
        left, order, right = parts
        return self._builder.ordered(_ORDERS[order], left, right)

    def listed(self, parts: Parts) -> Operand:
        return self._builder.listed(Op.IN, parts[0], tuple(map(_unquote, parts[1:])))

    def not_listed(self, parts: Parts) -> Operand:
        return self._builder.listed(Op.NOT_IN, parts[0], tuple(map(_unquote, parts[1:])))

    def searched(self, parts: Parts) -> Operand:
        operand, kind, text = parts
        return self._builder.searched(_SEARCHES[kind.type], operand, _unquote(text))

    def not_searched(self, parts: Parts) -> Operand:
        operand, kind, text = parts
        return self._builder.searched(_INVERTED[_SEARCHES[kind.type]], operand, _unquote(text))

    def text(self, parts: Parts) -> Operand:
        return self._builder.constant(_unquote(parts[0]))

    def decimal(self, parts: Parts) -> Operand:
        return self._builder.constant(_integer(parts[0]))

    def floating(self, parts: Parts) -> Operand:
        return self._builder.constant(_floating(parts[0]))

    def true(self, parts: Parts) -> Operand:
        return self._builder.truth(True)

    def false(self, parts: Parts) -> Operand:
        return self._builder.truth(False)

    def null(self, parts: Parts) -> Operand:
        return self._builder.truth(None)

    def property(self, parts: Parts) -> Operand:
        return self._builder.property(str(parts[0]))


def _spread(build: Callable[..., Operand]) -> Callable[[Parts], Operand]:
    return lambda parts: build(*parts)


def compile_filter(expression: str) -> Program:
    """The program of a condition. Raises FilterError."""
    steps = compiling(expression)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        program: Program = end.value
        return program


def compiling(expression: str) -> Generator[None, None, Program]:
    """`compile_filter` in steps of a few milliseconds."""
    _check_text(expression)
    tree = yield from _parsing(expression)
    builder = Builder()
    try:
        return builder.program(_Actions(builder).transform(tree))
    except VisitError as error:
        raise error.orig_exc from None


def _check_text(expression: str) -> None:
    try:
        size = len(expression.encode())
    except UnicodeEncodeError:
        raise FilterError("the expression holds half of a surrogate pair") from None
    if size > TEXT_BYTES_MAX:
        raise FilterError(f"the expression has {size} bytes, at most {TEXT_BYTES_MAX} are allowed")


def _parsing(expression: str) -> Generator[None, None, Tree[Token]]:
    parser = _PARSER.parse_interactive(expression)
    nesting, last = 0, None
    try:
        tokens = parser.lexer_thread.lex(parser.parser_state)  # type: ignore[no-untyped-call]
        for number, token in enumerate(tokens, 1):
            try:
                parser.feed_token(token)
            except UnexpectedToken as error:
                return _complete(parser, last, error)
            nesting += (token.type == "LPAR") - (token.type == "RPAR")
            if number > TOKENS_MAX or nesting > NESTING_MAX:
                raise FilterError(
                    f"the expression has more than {TOKENS_MAX} words and signs"
                    if number > TOKENS_MAX
                    else f"the expression has more than {NESTING_MAX} parentheses open at once"
                )
            last = token
            if number % STEP_TOKENS == 0:
                yield
        return _complete(parser, last, None)
    except UnexpectedCharacters as error:
        raise FilterError(f"no word or sign begins at character {error.pos_in_stream}") from None


def _complete(parser: InteractiveParser, last: Token | None, stopped: UnexpectedToken | None) -> Tree[Token]:
    """The tree of the tokens so far. Raises FilterError if they are no complete condition."""
    try:
        tree: Tree[Token] = parser.feed_eof(last)  # type: ignore[no-untyped-call]
    except UnexpectedToken:
        if stopped is None:
            raise FilterError("the expression ends too early") from None
        word, place = stopped.token[:64], stopped.token.start_pos
        raise FilterError(f"{word!r} at character {place} is not expected there") from None
    return tree


def _unquote(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _integer(token: Token) -> Int | Long:
    digits = token.rstrip("lL")
    if len(digits) > 19 or int(digits) > LONG_MAX:
        raise FilterError(f"{digits[:64]} exceeds {LONG_MAX}")
    number = int(digits)
    return Int(number) if number <= INT_MAX else Long(number)


def _floating(token: Token) -> float:
    number = float(token)
    if not 0.0 < number < math.inf:
        raise FilterError(f"{token[:64]} is not within the positive range of a double")
    return number
