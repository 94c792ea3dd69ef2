"""Texts that differ by a flip alone are told from texts that differ in more, or in nothing of weight."""

import pytest

from trans_encoder.evaluation.flipped import flip_between
from trans_encoder.evaluation.flips import written_flips


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Do not cancel my subscription", "Please cancel my subscription", "negation"),
        ("I can't log in", "I can log in", "negation"),
        ("It works", "It doesn't work any more", "negation"),
        ("She agreed to the terms.", "She did not agree to the terms.", "negation"),
        ("Refund for order 1234", "Refund for order 9876", "numbers"),
        ("Three men are playing chess", "2 men are playing chess", "numbers"),
        ("The dog bites a man", "The man bites the dog", "roles"),
        ("Fly from Oslo to Rome", "Fly from Rome to Oslo", "roles"),
        ("Why is Python slower than Java?", "Why is Java slower than Python?", "roles"),
        ("Do you ship to Norway?", "Do you ship to Japan?", "names"),
        ("How do I get from New York to Rome?", "How do I get from Boston to Rome?", "names"),
        ("the app crashes in Firefox on start", "the app crashes in Safari on start", "names"),
    ],
)
def test_a_flip_is_named(first, second, expected):
    assert flip_between(first, second) == flip_between(second, first) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I cannot log in", "I can't log in"),
        ("The order has not arrived", "The order has arrived late"),
        ("Isn't the shop open?", "Is the shop open?"),
        ("It is not impossible, never mind", "It is impossible, mind"),
        ("1,000 users", "1000 users"),
        ("five boys", "5 boys"),
        ("Version 2 crashes", "Version crashes"),
        ("bread and milk", "milk and bread"),
        ("Question no. 6 was asked", "Question 6 was asked"),
        ("a dog shaking off water", "a dog shaking water off"),
        ("Cancel my subscription", "cancel the subscription!"),
        ("", "not"),
        ("\U0001f600", "7"),
        ("He met the Russian envoy", "He met the Russia envoy"),
        ("Does Microsoft sell it?", "Does MS sell it?"),
        ("Is it sold in Britain?", "Is it sold in the UK?"),
        ("Who is Obama?", "Who is Barack Obama?"),
        ("Rain Expected In Oslo Today", "Rain Expected In Rome Today"),
        ("Pay by card", "Order by card"),
        ("I paid by Visa", "I paid by cheque"),
    ],
)
def test_other_differences_are_left_to_the_models(first, second):
    assert flip_between(first, second) is None
    assert flip_between(second, first) is None


def test_hand_written_flips_are_seen_and_their_paraphrases_are_not():
    cases = [case for case in written_flips() if case.kind in ("negation", "numbers", "roles")]
    seen = [flip_between(case.text, case.flip) == case.kind for case in cases]
    assert sum(seen) >= 30, "antonyms such as open and closed are beyond the rule"
    assert not [case for case in written_flips() if flip_between(case.text, case.paraphrase)]
