"""Random expressions and properties: mostly conditions that compile, and words that break the grammar."""

import random
from collections.abc import Iterator

NAMES = ["a", "b", "c", "d1", "_x", "$y", "TAGS", "KEYS", "Not1", "missing"]
NUMBERS = [
    "0", "1", "2", "5", "10", "007", "42L", "100l", "2147483647", "2147483648", "9223372036854775807",
    "9223372036854775808", "1.5", "0.0", ".5", "5.", "1e3", "1E-3", "2.5e+2", "1e400", "1e-400", "9007199254740993",
    "9007199254740992.0", "0L", "12abc",
]  # fmt: skip
TEXTS = ["''", "'x'", "'abc'", "'b'", "'5'", "'true'", "'it''s'", "'é'", "'😀'", "'a b'", "'%'", "''''"]
VALUES = [
    "x", "abc", "b", "5", "1", "0", "10", "-5", "+5", "5.5", "-0", "-0.0", "0.0", "true", "TRUE", "tRuE", "false",
    "it's",     "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "9007199254740993", "9007199254740992", "1e3", "1E400", "NaN", "-NaN", "Infinity", "-Infinity", "+Infinity", "nan",
    "0x1p3", "0x1.8p0", "0X.8P1d", "0x1p99999", "0x1", "5d", "5F", "5f ", " 5", "5 ", "\t5\n", "1_0", "٣", "３４", "߁",
    "é", "😀", "a b", "%", "'", "+", "-", "5L", "1e", ".", "5.", ".5", "1e+", "--5", "inf", "1.5", "42", "100", "x'y",
    "00000000000000000000007", "1" * 40, "\u00a05", "\u2003", "𝟙",
]  # fmt: skip
NOISE = [
    "AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "(", ")", ",", "=", "<>", "<", ">", "<=", ">=", "+", "-", "#",
    "/* c */", "/*", "--", "-- c\n", "'", "CONTAINS", "TRUE", "a", "'x'", "5", "!=", "==", "*", "\\", "\v", "\u212a",
    "ſ", ";",
]  # fmt: skip
KEYWORDS = {
    "AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "CONTAINS", "STARTSWITH", "ENDSWITH", "TRUE", "FALSE",
}  # fmt: skip


class FilterMaker:
    """Random expressions of one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pairs(self, expressions: int, sets: int) -> Iterator[tuple[str, list[dict[str, str]]]]:
        """Expressions, each with its sets of properties."""
        for _ in range(expressions):
            yield self.expression(), [self.properties() for _ in range(sets)]

    def properties(self) -> dict[str, str]:
        chosen = self._random
        return {name: chosen.choice(VALUES) for name in NAMES[:-1] if chosen.random() < 0.7}

    def expression(self) -> str:
        words = self._condition(self._random.choice((0, 1, 1, 2, 2, 3)))
        if self._random.random() < 0.2:
            self._break(words)
        return "".join(self._spell(word) + self._blank() for word in words)

    def _break(self, words: list[str]) -> None:
        for _ in range(self._random.choice((1, 1, 2))):
            at = self._random.randrange(len(words) + 1)
            match self._random.randrange(3):
                case 0:
                    words.insert(at, self._random.choice(NOISE))
                case 1:
                    words[at : at + 1] = [self._random.choice(NOISE)]
                case _:
                    del words[at : at + 1]

    def _spell(self, word: str) -> str:
        if word not in KEYWORDS:
            return word
        return self._random.choice((word, word, word.lower(), word.title()))

    def _blank(self) -> str:
        return self._random.choice((" ",) * 12 + ("\n", "\t", "  ", "/**/", " -- x\r\n", ""))

    def _condition(self, depth: int) -> list[str]:
        r = self._random
        if depth and r.random() < 0.8:
            match r.randrange(6):
                case 0:
                    return ["NOT", "(", *self._condition(depth - 1), ")"]
                case 1:
                    return ["(", *self._condition(depth - 1), ")"]
                case 2:
                    return ["(", *self._condition(depth - 1), ")", "=", *self._operand(depth - 1)]
                case _:
                    return [*self._condition(depth - 1), r.choice(("AND", "OR")), *self._condition(depth - 1)]
        return self._simple(depth)

    def _simple(self, depth: int) -> list[str]:
        r = self._random
        left = self._operand(depth)
        match r.randrange(12):
            case 0 | 1 | 2:
                return [*left, r.choice((">", ">=", "<", "<=")), *self._operand(depth)]
            case 3 | 4 | 5:
                return [*left, r.choice(("=", "<>")), *self._operand(depth)]
            case 6:
                return [*left, "IS", *self._maybe_not(), "NULL"]
            case 7:
                return [*left, *self._maybe_not(), "BETWEEN", *self._operand(0), "AND", *self._operand(0)]
            case 8:
                texts = [r.choice(TEXTS) for _ in range(r.choice((1, 2, 3, 8)))]
                listed = [part for text in texts for part in (",", text)][1:]
                return [r.choice(NAMES), *self._maybe_not(), "IN", "(", *listed, ")"]
            case 9 | 10:
                kind = r.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
                return [*left, *self._maybe_not(), kind, r.choice(TEXTS)]
            case _:
                return [r.choice((*NAMES, "TRUE", "FALSE", "NULL"))]

    def _maybe_not(self) -> list[str]:
        return ["NOT"] if self._random.random() < 0.4 else []

    def _operand(self, depth: int) -> list[str]:
        r = self._random
        chance = r.random()
        if chance < 0.5:
            return [r.choice(NAMES)]
        if chance < 0.72:
            return [r.choice(NUMBERS)]
        if chance < 0.82:
            return [r.choice(TEXTS)]
        if chance < 0.88:
            return [r.choice(("TRUE", "FALSE", "NULL"))]
        if chance < 0.97 or depth <= 0:
            return [r.choice("+-"), *self._operand(depth - 1)]
        return ["(", *self._condition(depth - 1), ")"]
