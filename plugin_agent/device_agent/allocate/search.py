"""Finds the best set of a given size, by what members and pairs are worth: branch and bound, limited in steps. Pure.

The limit is work and not time, so that one question has one answer on every machine and under every load. 8 devices
take some tens of steps. 16 that all differ take up to 300 steps, which is 2 ms; all of `WORK` takes 5 to 8 ms. If the
work runs out, the answer is the best set found so far. The search begins with the best of a few greedy sets.
"""

from collections.abc import Sequence
from typing import Final

WORK: Final = 24_000
"""Limit of one question: partial sets looked at, times the number of groups."""
_GREEDY_WORK: Final = 100
"""Limit of the greedy beginning: single choices, times the number of groups. At least one set is made."""


def best_counts(
    pairs: Sequence[Sequence[int]], *, members: Sequence[Sequence[int]], need: int, work: int = WORK
) -> tuple[int, ...]:
    """How many members of each group make the set of `need` members that is worth the most.

    Among equals: the set with the most of the first group, then of the second, and so on.

    `pairs[g][h]`: what one of g and one of h are worth together; symmetric and not negative. `pairs[g][g]`: two of g.
    `members[g]`: what g's first, second, … member is worth by itself, descending; at least one for each group, and at
    least `need` in all. `need` is at least 1.
    """
    return _Search(pairs, members=members, need=need).run(work // len(pairs))


class _Search:
    """One question. All values are doubled, because the bound halves what a pair is worth."""

    def __init__(self, pairs: Sequence[Sequence[int]], *, members: Sequence[Sequence[int]], need: int) -> None:
        self.groups = range(len(pairs))
        self.need = need
        self.caps = [min(len(of), need) for of in members]
        self.half = pairs
        self.pair = [[2 * worth for worth in row] for row in pairs]
        self.members = [[2 * worth for worth in of] for of in members]
        # rest[g]: how many members the groups from g on have together
        self.rest = [0] * (len(pairs) + 1)
        for g in reversed(self.groups):
            self.rest[g] = self.rest[g + 1] + self.caps[g]
        self.partners: list[list[list[int]]] = [[] for _ in self.groups]
        self.order = [sorted(self.groups, key=row.__getitem__, reverse=True) for row in pairs]
        self.counts = [0] * len(pairs)
        self.best: tuple[int, ...] = ()
        self.value = 0
        self.steps = 0

    def run(self, steps: int) -> tuple[int, ...]:
        self.steps = steps
        self.best, value = self._greedy()
        # 1 less, so that the search may replace the greedy set by the first one that is equally good
        self.value = value - 1
        self._descend(0, self.need, 0, [0] * len(self.groups))
        return self.best

    def _partners(self, first: int) -> list[list[int]]:
        """For each group from `first` on: a list of bounds, one for each number n of partners from 0.

        A bound is half of the most that one member of the group can be worth with n partners.
        """
        found = []
        for group in range(first, len(self.half)):
            row, sums, total = self.half[group], [0], 0
            for other in self.order[group]:
                if other >= first:
                    for _ in range(self.caps[other] - (other == group)):
                        total += row[other]
                        sums.append(total)
                    if len(sums) >= self.need:
                        break
            sums += [total] * (self.need - len(sums))
            found.append(sums)
        return found

    def _greedy(self) -> tuple[tuple[int, ...], int]:
        """The best of a few sets. Each begins with one member and grows by the best next one."""
        found: tuple[tuple[int, ...], int] | None = None
        seeds = max(1, _GREEDY_WORK // (self.need * len(self.groups)))
        for seed in self.groups[:seeds]:
            counts, value, gains = [0] * len(self.groups), 0, [0] * len(self.groups)
            pick = seed
            for n in range(self.need):
                if n:
                    open_groups = [g for g in self.groups if counts[g] < self.caps[g]]
                    pick = max(open_groups, key=lambda g: gains[g] + self.members[g][counts[g]])
                value += gains[pick] + self.members[pick][counts[pick]]
                counts[pick] += 1
                gains = [a + b for a, b in zip(gains, self.pair[pick], strict=True)]
            if found is None or value > found[1]:
                found = tuple(counts), value
        assert found is not None
        return found

    def _descend(self, group: int, need: int, value: int, gains: Sequence[int]) -> None:
        """Decides on the groups from `group` on. `gains[g]`: what one more of g is worth with the chosen members."""
        if self.steps <= 0:
            return
        self.steps -= 1
        if not need:
            if value > self.value:
                self.value, self.best = value, tuple(self.counts)
            return
        if value + self._bound(group, need, gains) <= self.value:
            return
        members, pairs = self.members[group], self.pair[group]
        gain, own = gains[group], pairs[group]
        most, least = min(self.caps[group], need), max(0, need - self.rest[group + 1])
        for count in range(most, least - 1, -1):
            added = count * gain + own * (count * (count - 1) // 2) + sum(members[:count])
            after = [a + count * b for a, b in zip(gains, pairs, strict=True)] if count else gains
            self.counts[group] = count
            self._descend(group + 1, need - count, value + added, after)
        self.counts[group] = 0

    def _bound(self, group: int, need: int, gains: Sequence[int]) -> int:
        """The most that `need` more members can add. Each one counts with its best partners, even if these differ."""
        caps, members = self.caps, self.members
        partners = self.partners[group]
        if not partners:
            partners = self.partners[group] = self._partners(group)
        options = [(gains[g] + sums[need - 1] + members[g][0], caps[g]) for g, sums in enumerate(partners, group)]
        options.sort(reverse=True)
        total = 0
        for value, cap in options:
            if cap >= need:
                return total + need * value
            total += cap * value
            need -= cap
        return total
