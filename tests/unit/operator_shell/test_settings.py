"""The command line: each setting once, from flag, environment or default."""

import argparse
from dataclasses import fields
from pathlib import Path

import pytest
from device_operator import __main__ as command
from device_operator.runtime import errors, settings
from device_operator.runtime.settings import Settings, flag_of, resolve, variable_of

NONE = Path("/nonexistent")


def parsed(*flags: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    settings.add_arguments(parser)
    return vars(parser.parse_args(flags))


def test_a_flag_overrides_the_environment_and_the_default() -> None:
    environ = {"DEVICE_OPERATOR_NAMESPACE": "env", "DEVICE_OPERATOR_LEASE_NAME": "env", "DEVICE_OPERATOR_WORKERS": "7"}
    found = resolve(parsed("--namespace", "flag"), environ=environ, namespace_file=NONE)
    assert (found.namespace, found.lease_name, found.workers, found.listen) == ("flag", "env", 7, ":8080")


def test_pull_secrets_repeat_as_flags_and_are_a_list_in_the_environment() -> None:
    flags = parsed("--agent-image-pull-secret=a", "--agent-image-pull-secret=b")
    assert resolve(flags, environ={}, namespace_file=NONE).agent_image_pull_secrets == ("a", "b")
    environ = {"DEVICE_OPERATOR_AGENT_IMAGE_PULL_SECRET": "c, d"}
    assert resolve({}, environ=environ, namespace_file=NONE).agent_image_pull_secrets == ("c", "d")


def test_the_namespace_is_the_pods_own_by_default(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("own\n")
    assert resolve({}, environ={}, namespace_file=file).namespace == "own"
    assert resolve({}, environ={}, namespace_file=NONE).namespace == "device-operator"


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        ({"DEVICE_OPERATOR_WORKERS": "many"}, "DEVICE_OPERATOR_WORKERS"),
        ({"DEVICE_OPERATOR_WORKERS": "0"}, "--workers"),
        ({"DEVICE_OPERATOR_LOG_FORMAT": "xml"}, "text, json"),
        ({"DEVICE_OPERATOR_RESYNC_SECONDS": "-1"}, "--resync-seconds"),
        ({"DEVICE_OPERATOR_RESYNC_SECONDS": "nan"}, "--resync-seconds"),
        ({"DEVICE_OPERATOR_LEASE_RETRY_SECONDS": "20"}, "--lease-retry-seconds must be below"),
    ],
)
def test_unusable_values_are_named(environ: dict[str, str], part: str) -> None:
    with pytest.raises(errors.UsageError, match=part):
        resolve({}, environ=environ, namespace_file=NONE)


def test_the_modules_docstring_names_every_flag() -> None:
    missing = [f.name for f in fields(Settings) if f"--{flag_of(f.name)}" not in (command.__doc__ or "")]
    assert missing == []


def test_variables_are_the_flags_in_capitals() -> None:
    assert variable_of("agent_image_pull_policy") == "DEVICE_OPERATOR_AGENT_IMAGE_PULL_POLICY"


def test_an_operator_without_an_agents_image_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["run"]) == 2
    assert "--agent-image is required" in capsys.readouterr().err
