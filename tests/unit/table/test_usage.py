"""When an id is free: the rules of `table.usage`, each as a story of what the kubelet told and when."""

import pytest
from device_agent.allocate.grant import granted
from device_agent.table.grants import Grant, Granted, Grants
from device_agent.table.usage import NOT_READ, Usage
from unit.table.samples import NAME, OTHER, held, listing, unit

A, B = (NAME, "a"), (NAME, "b")
DEVICE = Granted(granted(unit("a"), exclusive=True), 0, "boot")


def grants(*ids: str, pod: str = "uid") -> Grants:
    return Grants(tuple(Grant(f"{pod}-{i}", "main", NAME, (i,)) for i in ids))


# Steps of a story: (what, seconds, fields)


def lists(at: float, *ids: str):
    return lambda usage: usage.listed(listing(held(*ids)), begun=at)


def no_answer(at: float):
    return lambda usage: usage.listed(None, begun=at)


def record(at: float, *ids: str, sent: float | None = None):
    return lambda usage: usage.read(grants(*ids), at=at, resent=sent)


def torn():
    return lambda usage: usage.unreadable("torn")


def gives(at: float, *ids: str):
    return lambda usage: usage.handed_out((((NAME, i), DEVICE) for i in ids), now=at)


def told(*steps) -> Usage:
    usage = Usage()
    for step in steps:
        usage = step(usage)
    return usage


SHOWN = (lists(1, "a"), record(2, "a"))
"""A pod has a."""
GIVEN = (lists(1), record(2), gives(10, "a"))
"""a was handed out and has appeared nowhere."""
WITHOUT = (lists(1, "a"), torn())
"""A pod has a, and the record cannot be read."""


@pytest.mark.parametrize(
    ("steps", "busy"),
    [
        # nothing is known
        ((), True),
        ((record(1),), True),
        ((no_answer(1),), True),
        ((lists(1),), False),
        ((lists(1, "b"),), False),
        # what List or record shows is in use
        ((lists(1, "a"),), True),
        ((lists(1), record(2, "a")), True),
        ((lists(1, "a"), record(9)), True),
        # an id that was shown: a List without it, and the record two seconds later
        ((*SHOWN, lists(10)), True),
        ((*SHOWN, lists(10), record(20, "a")), True),
        ((*SHOWN, lists(10), record(11.9)), True),
        ((*SHOWN, lists(10), record(12)), False),
        ((*SHOWN, lists(10), record(11.9), record(12)), False),
        ((*SHOWN, record(20)), True),
        ((*SHOWN, lists(10, "a"), record(20)), True),
        ((*SHOWN, no_answer(10), record(20)), True),
        ((*SHOWN, record(9), lists(10)), True),
        ((*SHOWN, record(9), lists(10), record(12)), False),
        ((*SHOWN, lists(10), record(11.9), lists(20)), True),
        # a List that was begun before the id was last shown says nothing
        ((lists(1), record(10, "a"), lists(9), record(20)), True),
        ((lists(1), record(10, "a"), lists(9), record(20), lists(21), record(23)), False),
        ((lists(10, "a"), record(2), lists(9), record(20)), True),
        ((lists(1, "a"), record(8, "a"), record(10), lists(5), record(12)), True),
        # an id that was lost from one and is shown again begins anew
        ((*SHOWN, lists(10), lists(11, "a"), record(20)), True),
        ((*SHOWN, lists(10), record(11), record(11.5, "a"), record(20)), True),
        # an id that never appeared: List, one of our lists, and the record two seconds later
        (GIVEN, True),
        ((*GIVEN, lists(11)), True),
        ((*GIVEN, lists(11), record(99)), True),
        ((*GIVEN, lists(11), record(99, sent=10.5)), True),
        ((*GIVEN, lists(11), record(13.9, sent=12)), True),
        ((*GIVEN, lists(11), record(14, sent=12)), False),
        ((*GIVEN, lists(11), record(13, sent=11)), False),
        ((*GIVEN, record(99, sent=12)), True),
        ((*GIVEN, lists(9), record(99, sent=12)), True),
        ((*GIVEN, lists(10), record(99, sent=12)), True),
        ((*GIVEN, no_answer(11), record(99, sent=12)), True),
        # shown once, it is like any other
        ((*GIVEN, lists(11, "a"), lists(12), record(14)), False),
        ((*GIVEN, record(11, "a"), lists(12), record(14)), False),
        # handed out again, it begins anew
        ((*GIVEN, lists(11), gives(11.5, "a"), record(14, sent=12)), True),
        ((*SHOWN, lists(10), gives(10.5, "a"), record(13)), True),
        # what shows the holder before is no sign of the one after
        ((*GIVEN, lists(9, "a"), lists(11), record(99)), True),
        ((*GIVEN, record(9, "a"), lists(11), record(99)), True),
        # the record that was read before the hand-out does not count either
        ((lists(1), gives(10, "a"), record(9, "a"), record(9.5), lists(11), record(99)), True),
        # without a record: two Lists two seconds apart
        ((*WITHOUT, lists(10)), True),
        ((*WITHOUT, lists(10), lists(11.9)), True),
        ((*WITHOUT, lists(10), lists(12)), False),
        ((*WITHOUT, lists(10), lists(11, "a"), lists(12)), True),
        ((*WITHOUT, lists(10), no_answer(12)), True),
        ((*WITHOUT, lists(10), record(12)), False),
        ((lists(1, "a"), lists(10), lists(12)), False),
        # what the record showed last counts while it cannot be read
        ((*SHOWN, torn(), lists(10), lists(20)), True),
        ((*SHOWN, torn(), lists(10), record(12)), False),
        # without a record an id that never appeared stays
        ((*GIVEN, torn(), lists(11), lists(99), lists(9999)), True),
        ((lists(1), gives(10, "a"), lists(11), lists(9999)), True),
        ((*GIVEN, torn(), lists(11), lists(99), record(102, sent=100)), False),
        # an answer that is older than the last one says nothing
        ((lists(10), lists(9, "a")), False),
        ((lists(10, "a"), record(11, "a"), lists(9), record(99)), True),
        # the Lists of two other times do not add up
        ((*SHOWN, lists(10), record(10.5, "a"), lists(11, "a"), lists(12), record(13)), True),
    ],
)  # fmt: skip
def test_an_id_is_free_by_list_and_a_later_record_alone(steps, busy):
    assert told(*steps).busy(*A) is busy


def test_an_id_that_is_busy_does_not_make_others_busy():
    usage = told(*SHOWN, gives(3, "c"))
    assert [usage.busy(NAME, i) for i in "abc"] == [True, False, True]
    assert not usage.busy(OTHER, "a")
    usage = told(*SHOWN, lists(10), record(11), gives(11.5, "b"))
    assert (usage.busy(*A), usage.busy(*B)) == (True, True)


def test_each_id_has_a_doubt_of_its_own():
    usage = told(lists(1), record(2), gives(10, "a"), lists(11), gives(12, "b"), record(20, sent=13))
    assert not usage.busy(*A)
    assert usage.busy(*B)


# In use, for those whose health is shown to pods


@pytest.mark.parametrize(
    ("steps", "in_use"),
    [
        ((lists(1),), False),
        ((lists(1, "a"),), True),
        ((lists(1), record(2, "a")), True),
        (GIVEN, True),
        ((gives(1, "a"),), True),
        ((*GIVEN, lists(9)), True),
        ((*GIVEN, lists(11)), False),
        ((*SHOWN, lists(10), record(11)), False),
        ((lists(1), record(2, "a"), record(5)), False),
    ],
)
def test_an_id_in_use_is_shown_or_just_handed_out(steps, in_use):
    assert told(*steps).in_use(*A) is in_use


def test_what_is_used_has_what_is_shown_and_what_is_in_doubt():
    usage = told(lists(1, "a", "b"), record(2, "c"), gives(3, "d"), lists(4, "b"))
    assert usage.used() == {(NAME, i) for i in "abcd"}
    assert sorted(usage.held_keys()) == [(NAME, "b"), (NAME, "c")]
    assert usage.doubts.keys() == {(NAME, "a"), (NAME, "d")}


def test_ids_that_the_record_has_and_list_lacks_are_left_over():
    """They are of ended pods, until anybody's list is sent, or of init containers."""
    usage = told(lists(1, "a"), record(2, "a", "b"))
    assert usage.left_over == {B}
    assert told(lists(1), record(2)).left_over == frozenset()


# The record itself


def test_the_record_is_a_problem_until_it_was_read_and_while_it_cannot_be():
    usage = told(lists(1))
    assert (usage.problem, usage.looked) == (NOT_READ, False)
    usage = torn()(usage)
    assert (usage.problem, usage.looked) == ("torn", True)
    usage = record(2)(usage)
    assert (usage.problem, usage.looked, usage.recorded) == ("", True, 2)


def test_what_an_earlier_process_knew_counts_until_the_record_is_read():
    before = Usage().restored(grants("a"))
    assert before.listed(listing({}), begun=1).busy(*A)
    after = before.listed(listing({}), begun=1).read(grants(), at=2, resent=None)
    assert after.busy(*A), "a List begun later must lack it, too"
    assert not lists(3)(after).read(grants(), at=5, resent=None).busy(*A)
    assert told(record(1)).restored(grants("a")).grants == Grants()


def test_grants_that_left_the_record_are_known_until_their_ids_are_free():
    usage = told(lists(1, "a", "b"), record(2, "a", "b"))
    assert usage.past == Grants()
    usage = record(3, "b")(usage)
    assert usage.past == grants("a")
    usage = record(4, "a", "b")(usage)
    assert usage.past == Grants(), "it is there again"
    usage = lists(7)(record(6, "b")(usage))
    assert (usage.past, usage.who(*A)) == (grants("a"), ("the pod with uid uid-a",))
    usage = record(8)(usage)
    assert usage.past == grants("a", "b")
    assert record(8.5)(usage).past is usage.past
    assert record(9)(usage).past == Grants()
    assert lists(9)(torn()(usage)).past == Grants()


@pytest.mark.parametrize(
    "step",
    [lists(20, "a"), record(20, "a"), torn(), record(30, "a", sent=25), lists(2, "b")],
    ids=["List", "record", "torn", "record after a list", "older List"],
)
def test_equal_news_keeps_the_values(step):
    """The table compares by identity: what changed is judged anew."""
    usage = torn()(told(lists(10, "a"), record(11, "a")))
    after = step(usage)
    assert after.listing is usage.listing
    assert after.grants is usage.grants
    assert after.doubts is usage.doubts


def test_a_pod_is_named_by_list_then_by_what_was_seen_then_by_its_uid():
    assert told(lists(1, "a"), record(2, "a")).who(*A) == ("default/pod-a",)
    assert told(lists(1), record(2, "a")).who(*A) == ("the pod with uid uid-a",)
    assert told(lists(1)).who(*A) == ()
