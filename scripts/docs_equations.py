"""Draw the equations of docstrings: from the notation of the code to MathML, which browsers show without any script.

    L = -mean min(r A, clip(r, 1 - eps, 1 + eps) A),  r = pi(a|s) / pi_old(a|s)

An equation is an indented block of a docstring, or the beginning of its first sentence. In the second case every word
of it must be known here, so that prose stays prose. CONTRIBUTING.md has the rules of the notation for authors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "eps", "zeta", "eta", "theta", "kappa", "lambda", "mu", "nu", "xi",
    "pi", "rho", "sigma", "tau", "phi", "psi", "omega",
}  # fmt: skip
FUNCTIONS = {
    "log", "exp", "sqrt", "clip", "mean", "softmax", "argmax", "argmin", "min", "max", "softplus", "sigmoid", "tanh",
    "KL", "Huber", "Var", "sign", "end", "done", "trace", "inf",
}  # fmt: skip
LIMITS = {"min", "max", "argmax", "argmin", "mean", "sum", "prod"}  # their subscript stands below them
LARGE = {"sum": "&sum;", "prod": "&prod;"}
BETWEEN = {"with", "for", "where", "if", "and"}  # between two equations of one line
INFIX = {
    "+": "+", "-": "&minus;", "+-": "&plusmn;", "=": "=", "<": "&lt;", ">": "&gt;", "<=": "&le;", ">=": "&ge;",
    "~": "&sim;", "<-": "&larr;", "->": "&rarr;", ",": ",", ";": ";", "||": "&parallel;", "|": "|", "!=": "&ne;",
    "..": "&hellip;", "...": "&hellip;", ":=": "&colone;",
}  # fmt: skip
BRACKETS = {"(": ")", "[": "]"}

TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<name>[A-Za-z]+\d*'*(?:_(?:\{[^}]*\}|[A-Za-z0-9]+'*))*(?:\*(?=[\s),.;\]]|$))?)"
    r"|(?P<number>\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?)"
    r"|(?P<sign>\.\.\.|\.\.|\|\||<=|>=|<-|->|!=|:=|\+-|[-+*/^=<>~,;|.()\[\]])"
)
# The end of an equation within a sentence; `inf` is a number, and `e.g.` does not occur in one.
CLAUSE_END = re.compile(r"\.(?=\s|$)|[,:;](?=\s)|\s{2,}|\s(?=\[[A-Z])|$")
TAG = re.compile(r"\s*\((?:to be minimized, )?((?:eqs?\.|equations?|section|appendix|algorithm) [^()]*)\)")


class NotMathematicsError(ValueError):
    """The text does not follow the notation."""


@dataclass(frozen=True)
class Part:
    """A piece of a docstring: prose, or an equation with its number in the paper."""

    text: str
    is_equation: bool = False
    tag: str = ""


def parts_of(docstring: str) -> Iterator[Part]:
    """Prose and equations of a docstring, in order."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", docstring.strip("\n"))):
        lines = paragraph.splitlines()
        if all(line.startswith("    ") for line in lines) or all(_is_equation_line(line) for line in lines):
            yield from (_equation(line) for line in lines)
        elif number == 0:
            yield from _first_paragraph(" \n".join(lines))
        else:
            yield Part(paragraph)


def html_of(part: Part) -> str:
    """An equation as a block of HTML. What does not follow the notation is shown as it is written."""
    try:
        drawn = f'<math display="block" alttext="{escape(part.text)}">{mathml(part.text, any_words=True)}</math>'
    except NotMathematicsError:
        drawn = f"<code>{escape(part.text)}</code>"
    tag = f'<span class="tag">{escape(part.tag)}</span>' if part.tag else ""
    return f'<div class="equation">{drawn}{tag}</div>'


def mathml(text: str, any_words: bool = False) -> str:
    """The MathML of an equation; words that are not known are refused, or stand upright with `any_words`."""
    parser = _Parser(text, any_words)
    drawn = parser.row()
    if parser.rest():
        raise NotMathematicsError(f"cannot read {parser.rest()!r}")
    return drawn


def _equation(text: str) -> Part:
    text = " ".join(text.split())
    tag = TAG.search(text)
    if tag and tag.end() >= len(text.rstrip(". ")):
        return Part(text[: tag.start()].rstrip(" .,"), True, tag[1])
    return Part(text.rstrip(" .,"), True)


def _is_equation_line(line: str) -> bool:
    return " = " in line and _can_be_drawn(_equation(line).text)


def _can_be_drawn(text: str) -> bool:
    try:
        mathml(text)
    except NotMathematicsError:
        return False
    first, *others = re.split(rf"\s(?:{'|'.join(sorted(BETWEEN))})\s", text)
    is_more = all(re.search(r"[=<>~]", other) for other in others)  # "with a" begins a sentence, "with a = b" does not
    return is_more and bool(re.search(r"[=+*/^(]|\bmean\b|\bsum", first)) and len(first) > 5


def _first_paragraph(text: str) -> Iterator[Part]:
    """`Label: equation (eq. 1), the rest.` in its parts; label, number and rest may be missing."""
    starts = [0, *(match.end() for match in re.finditer(r":\s+", text))]
    for start in starts:
        ends = [match.start() for match in CLAUSE_END.finditer(text, start)]
        ends += [start + match.start() for match in re.finditer(r"\s(?:with|for|where|if|and|of)\s", text[start:])]
        for end in sorted((end for end in ends if end > start), reverse=True):
            candidate = " ".join(text[start:end].split()).rstrip(".,")
            if not _can_be_drawn(candidate):
                continue
            if text[:start].strip():
                yield Part(text[:start].strip())
            tag = TAG.match(text, end)
            yield Part(candidate, True, tag[1] if tag else "")
            rest = text[tag.end() if tag else end :].lstrip(" .,:;\n")
            if rest:
                yield Part(_sentence(rest))
            return
    yield Part(text)


def _sentence(rest: str) -> str:
    """With a capital, if it starts with a word."""
    return rest[0].upper() + rest[1:] if re.match(r"[a-z]{2,}\s", rest) else rest


class _Parser:
    """Recursive descent over the tokens of one equation; every method returns MathML."""

    def __init__(self, text: str, any_words: bool) -> None:
        self.any_words = any_words
        self.tokens: list[tuple[str, str, bool]] = []  # kind, text, whether a space comes before it
        at, space = 0, False
        while at < len(text):
            match = TOKEN.match(text, at)
            if match is None:
                raise NotMathematicsError(f"cannot read {text[at:]!r}")
            if match.lastgroup != "space":
                self.tokens.append((match.lastgroup or "", match[0], space))
            space, at = match.lastgroup == "space", match.end()
        self.at = 0
        self.depth = 0  # of brackets

    def rest(self) -> str:
        return " ".join(text for _, text, _ in self.tokens[self.at :])

    def peek(self) -> tuple[str, str, bool]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "", False)

    def take(self) -> tuple[str, str, bool]:
        token = self.peek()
        self.at += 1
        return token

    def row(self, closing: str = "") -> str:
        """Terms with signs between them, up to `closing` or the end."""
        parts: list[str] = []
        expects_term = True
        while True:
            kind, text, _ = self.peek()
            if kind == "end" or text == closing or text in (")", "]"):
                break
            if kind == "name" and text in BETWEEN:
                if expects_term:
                    raise NotMathematicsError(f"{text!r} is between nothing")
                self.take()
                parts.append(f'<mspace width="0.8em"/><mtext>{text}</mtext><mspace width="0.6em"/>')
                expects_term = True
            elif expects_term and text == "-":
                self.take()
                parts.append('<mo form="prefix">&minus;</mo>')
            elif expects_term and text == "|" and closing != "|":
                parts.append(self.product())
                expects_term = False
            elif text in INFIX:
                if expects_term:
                    raise NotMathematicsError(f"no term before {text!r}")
                self.take()
                wide = '<mspace width="0.9em"/>' if text == "," and not closing else ""
                parts.append(f"<mo>{INFIX[text]}</mo>{wide}")
                expects_term = True
            elif expects_term:
                parts.append(self.product())
                expects_term = False
            else:
                raise NotMathematicsError(f"no sign before {text!r}")
        if not parts or (expects_term and not closing):
            raise NotMathematicsError("an equation ends in a term")
        return _grouped(parts)

    def product(self) -> str:
        """Factors side by side; outside brackets, a slash makes a fraction of the factors next to it."""
        parts = [self.factor()]
        while True:
            kind, text, _ = self.peek()
            if text == "/":
                self.take()
                if self.depth:  # brackets do not grow around a fraction where a font for mathematics is missing
                    parts += ["<mo>/</mo>", self.factor()]
                else:
                    parts[-1] = f"<mfrac>{_bare(parts[-1])}{_bare(self.factor())}</mfrac>"
            elif text == "*":
                self.take()
                parts.append("<mo>&sdot;</mo>")
                if self.peek()[1] == "-":
                    self.take()
                    parts.append('<mo form="prefix">&minus;</mo>')
                parts.append(self.factor())
            elif (kind in ("name", "number") and text not in BETWEEN) or text == "(":  # [B] is a shape
                factor = self.factor()
                parts += ['<mspace width="0.17em"/>', factor]
            else:
                return _grouped(parts)

    def factor(self) -> str:
        base = self.atom()
        if self.peek()[1] == "^":
            self.take()
            sign = ""
            if self.peek()[1] == "-":
                self.take()
                sign = "<mo>&minus;</mo>"
            base = f"<msup>{base}<mrow>{sign}{_bare(self.atom())}</mrow></msup>"
        return base

    def atom(self) -> str:
        kind, text, _ = self.take()
        if kind == "number":
            is_indicator = text == "1" and self.peek()[1] in BRACKETS and not self.peek()[2]
            return f"<mrow><mn>&#x1D7CF;</mn>{self.atom()}</mrow>" if is_indicator else f"<mn>{text}</mn>"
        if text in BRACKETS:
            self.depth += 1
            inside = self.row(BRACKETS[text])
            self.depth -= 1
            if self.take()[1] != BRACKETS[text]:
                raise NotMathematicsError(f"{text!r} is not closed")
            return f"<mrow><mo>{text}</mo>{inside}<mo>{BRACKETS[text]}</mo></mrow>"
        if text == "|":
            inside = self.row("|")
            if self.take()[1] != "|":
                raise NotMathematicsError("'|' is not closed")
            return f'<mrow><mo form="prefix">|</mo>{inside}<mo form="postfix">|</mo></mrow>'
        if text == "." and self.peek()[1] in ("|", ")", ","):  # any action
            return "<mo>&sdot;</mo>"
        if kind != "name":
            raise NotMathematicsError(f"a term cannot start with {text!r}")
        drawn = self.name(text)
        _, following, space = self.peek()
        if following in BRACKETS and not space:
            return f"<mrow>{drawn}<mo>&#x2061;</mo>{self.atom()}</mrow>"
        return drawn

    def name(self, text: str) -> str:
        match = re.fullmatch(r"([A-Za-z]+?)(\d*)('*)((?:_(?:\{[^}]*\}|[A-Za-z0-9]+'*))*)(\*?)", text)
        if match is None:
            raise NotMathematicsError(f"cannot read {text!r}")
        base, digits, primes, below, star = match.groups()
        subscripts = re.findall(r"_(\{[^}]*\}|[A-Za-z0-9]+'*)", below)
        if base == "pg" and subscripts:  # the cap of the policy gradient
            base, subscripts = subscripts[0], [*subscripts[1:], "pg"]
        drawn = self.word(base, is_known=bool(set(subscripts) & set("ijkntb")))
        if "bar" in subscripts:
            subscripts.remove("bar")
            drawn = f'<mover accent="true">{drawn}<mo stretchy="false">&macr;</mo></mover>'
        above = "<mo>&prime;</mo>" * len(primes) + "<mo>&lowast;</mo>" * len(star)
        index = self.index([*([digits] if digits else []), *subscripts])
        if index and base in LIMITS:
            return f"<munder>{drawn}{index}</munder><mspace width='0.17em'/>"
        if index and above:
            return f"<msubsup>{drawn}{index}<mrow>{above}</mrow></msubsup>"
        if index:
            return f"<msub>{drawn}{index}</msub>"
        return f"<msup>{drawn}<mrow>{above}</mrow></msup>" if above else drawn

    def index(self, subscripts: list[str]) -> str:
        """`tau_i` below a letter is tau with an index of its own."""
        if not subscripts:
            return ""
        first, *others = subscripts
        if first.startswith("{"):
            drawn = mathml(first[1:-1], any_words=True)
        else:
            letters, primes = first.rstrip("'"), first.count("'")
            if letters in GREEK:
                drawn = _greek(letters)
            elif letters.isdigit():
                drawn = f"<mn>{letters}</mn>"
            elif len(letters) == 1 or set(letters) <= set("ijkntb"):
                drawn = "".join(f"<mi>{letter}</mi>" for letter in letters)
            else:
                drawn = f"<mtext>{letters}</mtext>"
            drawn = f"<mrow>{drawn}</mrow>" if len(letters) > 1 and letters not in GREEK else drawn
            if primes:
                drawn = f"<msup>{drawn}<mrow>{'<mo>&prime;</mo>' * primes}</mrow></msup>"
        return f"<msub>{drawn}{self.index(others)}</msub>" if others else f"<mrow>{drawn}</mrow>"

    def word(self, base: str, is_known: bool) -> str:
        if base in GREEK:
            return _greek(base)
        if base in LARGE:
            return f'<mo largeop="true" movablelimits="false">{LARGE[base]}</mo>'
        if base == "inf":
            return "<mn>&infin;</mn>"
        if base in FUNCTIONS:
            return f'<mi mathvariant="normal">{base}</mi>'
        if len(base) == 1:
            return f"<mi>{base}</mi>"
        if not (is_known or self.any_words):
            raise NotMathematicsError(f"{base!r} is not a word of the notation")
        return f"<mtext>{base}</mtext>"


def _greek(name: str) -> str:
    return f"<mi>&{'epsilon' if name == 'eps' else name};</mi>"


def _grouped(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"


def _bare(drawn: str) -> str:
    """Without the round brackets that a fraction or an exponent makes needless."""
    match = re.fullmatch(r"<mrow><mo>\(</mo>(.*)<mo>\)</mo></mrow>", drawn, re.DOTALL)
    return f"<mrow>{match[1]}</mrow>" if match and _balanced(match[1]) else drawn


def _balanced(inside: str) -> bool:
    depth = 0
    for sign in re.findall(r"<mo>([()])</mo>", inside):
        depth += 1 if sign == "(" else -1
        if depth < 0:
            return False
    return depth == 0
