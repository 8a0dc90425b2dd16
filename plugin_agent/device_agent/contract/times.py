"""Times as the API writes them."""

from datetime import UTC, datetime


def since_text(moment: datetime) -> str:
    """A time as the API writes it: RFC 3339, whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
