"""Text from outside becomes one printable line of limited length."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz_envs import WithoutText
from rl_training.config.messages import printable
from rl_training.text import clean_text, describe_error, one_line, reason


def test_unprintable_characters_are_dropped_and_other_spaces_become_plain() -> None:
    assert clean_text("a\x1b[31mred\n\x00\x9b\u202e\u2028\udc80 end") == "a[31mred end"
    assert clean_text("größe\u00a0and\u3000more") == "größe and more"


def test_long_text_is_shortened_unless_there_is_no_limit() -> None:
    assert clean_text("x" * 500) == "x" * 500
    assert clean_text("x" * 501) == "x" * 497 + "..."
    assert clean_text("abcdefgh", 6) == "abc..."
    assert clean_text("x" * 9999, limit=None) == "x" * 9999


def test_one_line_joins_lines_with_single_spaces() -> None:
    assert one_line("  a\n\n b\tc\r\nd ") == "a b c d"
    assert one_line(None) == "None"
    assert len(one_line("word " * 1000)) == 300


@given(st.text(max_size=400))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_text_becomes_printable_and_short(text: str) -> None:
    for line in (clean_text(text, 50), one_line(text, 50), reason(ValueError(text), 50)):
        assert line.isprintable() and len(line) <= 50


def test_an_error_is_named_by_its_message_or_else_by_its_type() -> None:
    assert reason(ValueError("\nfirst line\nsecond line")) == "first line"
    assert reason(KeyError()) == "KeyError"
    assert describe_error(ValueError("first line\n  second line")) == "ValueError: first line second line"
    assert describe_error(AssertionError()) == "AssertionError"


def test_a_value_whose_own_code_fails_is_named_by_its_type() -> None:
    for line in (one_line(WithoutText()), reason(WithoutText())):
        assert line == "WithoutText without a text"
    assert describe_error(WithoutText()) == "WithoutText: WithoutText without a text"
    assert printable(10**5000) == "int without a text"  # Python refuses to write so many digits
