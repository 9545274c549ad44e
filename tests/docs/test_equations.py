"""Equations of docstrings: the notation is drawn as mathematics, and prose stays prose."""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rl_training.config.algorithm_table import ALGORITHMS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from docs_equations import NotMathematicsError, Part, html_of, mathml, parts_of  # noqa: E402
from docs_reference import own_functions, shared_mathematics, shown  # noqa: E402


def words(drawn: str) -> str:
    """The characters of MathML, without spaces. Entities of HTML become their names."""
    text = "".join(ElementTree.fromstring(f"<math>{drawn.replace('&', '&amp;')}</math>").itertext())
    return "".join(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gamma^n", "<msup><mi>&gamma;</mi><mrow><mi>n</mi></mrow></msup>"),
        ("1/2", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
        ("(a + b) / N", "<mfrac><mrow><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow></mrow><mi>N</mi></mfrac>"),
        ("c_v", "<msub><mi>c</mi><mrow><mi>v</mi></mrow></msub>"),
        ("pi_old", "<msub><mi>&pi;</mi><mrow><mrow><mtext>old</mtext></mrow></mrow></msub>"),
        ("a*", "<msup><mi>a</mi><mrow><mo>&lowast;</mo></mrow></msup>"),
        ("rho_bar", '<mover accent="true"><mi>&rho;</mi><mo stretchy="false">&macr;</mo></mover>'),
    ],
)
def test_scripts_and_fractions(text: str, expected: str) -> None:
    assert mathml(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("w * -log pi(a|s)", "w&sdot;&minus;log&pi;&#x2061;(a|s)"),
        ("|tau_i - 1(u < 0)| x", "|&tau;i&minus;&#x1D7CF;(u&lt;0)|x"),
        ("KL(pi_t || pi) ~ pi(.|s')", "KL&#x2061;(&pi;t&parallel;&pi;)&sim;&pi;&#x2061;(&sdot;|s&prime;)"),
        ("v_{t+1} - l0", "vt+1&minus;l0"),
        ("i = 0 .. N - 1", "i=0&hellip;N&minus;1"),
    ],
)
def test_signs_keep_their_order(text: str, expected: str) -> None:
    assert words(mathml(text)) == expected


@pytest.mark.parametrize("text", ["the mean", "r A)", "a +", "= b", "(a", "f(x", "a with", "mean $ x", "A [B]", ""])
def test_what_is_not_mathematics_is_refused(text: str) -> None:
    with pytest.raises(NotMathematicsError):
        mathml(text)


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("y = r + d * Q'(s').   [B]", [("y = r + d * Q'(s')", ""), "[B]"]),
        ("L = c_v mean H      (eq. 9)\n\nAll [B].", [("L = c_v mean H", "eq. 9"), "All [B]."]),
        ("The loss: mean (y - Q)^2, with one target.", ["The loss:", ("mean (y - Q)^2", ""), "With one target."]),
        ("-mean Q(s, mu(s)): climb it.", [("-mean Q(s, mu(s))", ""), "Climb it."]),
        ("A step.\n\n    g = mean loss_term\n\nMore.", ["A step.", ("g = mean loss_term", ""), "More."]),
        ("Mean 0 and deviation 1; a row has none.", ["Mean 0 and deviation 1; a row has none."]),
        ("-sum log p(a|s) with a of the model.", [("-sum log p(a|s)", ""), "With a of the model."]),
        ("h(x) = sign(x) x; without it x.", [("h(x) = sign(x) x", ""), "Without it x."]),
        ("The actions that a policy took.", ["The actions that a policy took."]),
    ],
)  # fmt: skip
def test_a_docstring_is_split_into_prose_and_equations(docstring: str, expected: list[str | tuple[str, str]]) -> None:
    found = [(part.text, part.tag) if part.is_equation else part.text for part in parts_of(docstring)]
    assert found == expected


def test_an_equation_that_cannot_be_drawn_is_shown_as_it_is_written() -> None:
    assert html_of(Part("a ? <b>", True)) == '<div class="equation"><code>a ? &lt;b&gt;</code></div>'


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_equations_that_are_drawn(name: str) -> None:
    module = import_module(str(ALGORITHMS[name].learner).partition(":")[0])
    losses = [*own_functions(module), *shared_mathematics(module)]
    text = "".join(shown(inspect.cleandoc(documented.__doc__ or "")) for documented in [module, *losses])
    assert "<math " in text
    assert "<code>" not in text, "an indented block of a docstring does not follow the notation (CONTRIBUTING.md)"


WITHOUT_EQUATION = {"logits_of", "taken", "truncated_mixture"}  # they choose and sort


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_loss_has_an_equation_of_its_own(name: str) -> None:
    module = import_module(str(ALGORITHMS[name].learner).partition(":")[0])
    for function in own_functions(module):
        parts = list(parts_of(inspect.cleandoc(function.__doc__ or "")))
        has_equation = any(part.is_equation for part in parts)
        assert has_equation or function.__name__ in WITHOUT_EQUATION, f"{function.__name__}: {parts[0].text}"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_equation_is_left_over_in_prose(name: str) -> None:
    """`x_t+1` would be drawn as x_t + 1, and half of an equation that stops at an unknown sign leaves a bracket."""
    module = import_module(str(ALGORITHMS[name].learner).partition(":")[0])
    for documented in [module, *own_functions(module), *shared_mathematics(module)]:
        docstring = inspect.cleandoc(documented.__doc__ or "")
        assert not re.search(r"_[a-z]\+\w", docstring), f"write x_{{t+1}}: {documented.__name__}"
        for part in parts_of(docstring):
            is_rest = bool(re.match(r"[-+*/=)]|\[[A-Za-z]+_", part.text)) and not part.is_equation
            assert not is_rest, f"{documented.__name__}: {part.text}"


@pytest.mark.parametrize(
    ("name", "used", "not_used"),
    [
        ("ppo", "gae", "lambda_returns"),
        ("impala", "vtrace", "gae"),
        ("c51", "project", "quantile_midpoints"),
        ("naf", "precision_noise", "critic_loss"),
        ("pqn", "lambda_returns", "precision_noise"),
    ],
)
def test_shared_mathematics_is_what_the_algorithm_calls(name: str, used: str, not_used: str) -> None:
    module = import_module(str(ALGORITHMS[name].learner).partition(":")[0])
    names = [function.__name__ for function in shared_mathematics(module)]
    assert used in names and not_used not in names
