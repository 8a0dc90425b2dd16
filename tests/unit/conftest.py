"""All of the unit tests: a property says what is true, not how fast, on a machine that others use as well.

Where CI is set, the examples are the same in each run, so that a run judges the change at hand; everywhere else they
are new ones, which is how properties find what nobody thought of.
"""

import os

from hypothesis import settings

settings.register_profile("unit", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("unit")
