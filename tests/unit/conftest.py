"""Settings of all unit tests. Property tests have no time limit, because other programs use the machine too.

Where CI is set, each run has the same examples, so a failure comes from the change under test. Everywhere else each
run has new examples, so that properties find cases that nobody thought of.
"""

import os

from hypothesis import settings

settings.register_profile("unit", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("unit")
