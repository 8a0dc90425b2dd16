"""All of the unit tests: a property says what is true, not how fast, on a machine that others use as well."""

from hypothesis import settings

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
