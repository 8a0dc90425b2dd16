"""What the kubelet was told is what was written to it: an id that it may take for Healthy is never dropped."""

from device_agent.table.retention import HEARD_SECONDS
from unit.table.samples import NAME, OTHER, Steps, held, resource, unit

BROKEN = ("CompanionMissing", "/dev/ctl is missing")


def gone(*, broken: bool = False) -> Steps:
    """Devices a and b of which the kubelet was told, and then b is not found; PodResources shows both free."""
    steps = Steps()
    steps.scan(unit("a"), unit("b", problem=BROKEN if broken else None))
    steps.send()
    steps.list({})
    steps.scan(unit("a"))
    return steps


def test_a_list_that_was_not_written_frees_no_id():
    steps = gone()
    for _ in range(3):
        assert steps.table.listed(NAME)[1].healthy is False
        assert steps.list({}) == frozenset()
    steps.send()
    assert steps.list({}) == {NAME}


def test_an_older_list_that_is_written_late_frees_no_id():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    late = steps.table.listed(NAME)
    steps.scan(unit("a"))
    steps.table.told(NAME, late, now=steps.now)
    for _ in range(3):
        assert steps.list({}) == frozenset()


def test_the_kubelet_gets_time_to_process_a_list():
    steps = gone()
    steps.send()
    written = steps.now
    assert steps.list({}, begun=written + HEARD_SECONDS - 0.1) == frozenset()
    assert steps.list({}, begun=written + HEARD_SECONDS) == {NAME}


def test_an_id_already_unhealthy_goes_without_another_list():
    steps = gone(broken=True)
    assert steps.seen() == {"a": True, "b": False}  # as the kubelet has it
    assert steps.list({}) == {NAME}
    assert steps.seen() == {"a": True}


def test_an_id_already_unhealthy_stays_for_a_list_begun_before_it_left():
    steps = gone(broken=True)
    assert steps.list({}, begun=steps.now - 0.5) == frozenset()
    assert steps.list({}) == {NAME}


def test_an_id_that_was_healthy_in_between_must_be_written_as_unhealthy_again():
    steps = gone()
    steps.send()
    steps.scan(unit("a"), unit("b"))
    steps.send()
    steps.scan(unit("a"))
    assert steps.list({}) == frozenset()
    steps.send()
    assert steps.list({}) == {NAME}


def test_an_id_that_is_healthy_in_a_list_in_flight_stays():
    steps = gone()
    steps.send()
    steps.scan(unit("a"), unit("b"))
    on_its_way = steps.table.listed(NAME)
    steps.scan(unit("a"))
    assert steps.list({}) == frozenset()
    steps.table.told(NAME, on_its_way, now=steps.now)
    assert steps.list({}) == frozenset()
    steps.send()
    assert steps.list({}) == {NAME}


def test_a_late_list_with_an_unhealthy_id_does_not_count_if_it_is_healthy_now():
    steps = Steps()
    steps.scan(unit("a"), unit("b", problem=BROKEN))
    late = steps.table.listed(NAME)
    steps.scan(unit("a"), unit("b"))
    steps.table.told(NAME, late, now=steps.now)
    steps.scan(unit("a"))
    assert steps.list({}) == frozenset()
    steps.send()
    assert steps.list({}) == {NAME}


def test_a_list_of_one_name_does_not_count_for_another():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("a"), unit("b"), unit("c", name=OTHER))
    steps.list({})
    steps.scan(unit("a"))
    steps.send(NAME)
    assert steps.list({}) == {NAME}
    assert (steps.seen(NAME), steps.seen(OTHER)) == ({"a": True}, {"c": False})
    steps.send(OTHER)
    assert steps.list({}) == {OTHER}


def test_a_list_of_a_name_that_is_not_served_changes_nothing():
    steps = Steps()
    steps.scan(unit("a"))
    steps.table.told(OTHER, steps.table.listed(NAME), now=steps.now)
    assert steps.list(held("a")) == frozenset()
