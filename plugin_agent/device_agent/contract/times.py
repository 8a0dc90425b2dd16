"""Writes times as the Kubernetes API does."""

from datetime import UTC, datetime


def since_text(moment: datetime) -> str:
    """A time as text: RFC 3339, whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
