"""Installing, testing, removing and installing again, as Helm does it."""

import os
import subprocess
import sys

import yaml
from localcluster import places

API_VERSION = "device-operator.io/v1alpha1"
CHART = places.CHECKOUT / "charts" / "device-operator"
CONFIGS = f"/apis/{API_VERSION}/devicepluginconfigs"
NAMESPACE = "devices"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/do-device-operator"
INVENTORIES = f"/apis/{API_VERSION}/nodedeviceinventories"
OPERATOR = "do-device-operator"
AGENT, NODE = f"{OPERATOR}-agent", f"{OPERATOR}-agent-node"
EVERYWHERE = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def test_the_notes_say_what_to_do_next(release):
    assert "kubectl apply -f -" in release.notes
    assert "kubectl get dpc,ndi" in release.notes
    assert "crds.keep" in release.notes
    assert f"kubectl label namespace {NAMESPACE} pod-security.kubernetes.io/enforce=privileged" in release.notes


def test_the_example_in_the_notes_is_accepted(release):
    text = release.notes.partition("<<'END'\n")[2].partition("\n  END")[0]
    example = yaml.safe_load(text)
    answer = release.admin("POST", f"{CONFIGS}?dryRun=All", example)
    assert answer.code == 201, answer.message


def test_the_release_test_sees_an_operator_that_is_available_and_one_that_is_not(release, tmp_path):
    """Runs the program of the test pod with that pod's rights. No controller runs: the test sets the Deployment's status."""
    hooks = [o for o in yaml.safe_load_all(release.cluster.helm("get", "hooks", "do", "-n", NAMESPACE)) if o]
    rights = [o for o in hooks if o["kind"] != "Pod"]
    [pod] = [o for o in hooks if o["kind"] == "Pod"]
    release.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(rights))
    try:
        (tmp_path / "token").write_text(release.token("do-device-operator-test"))
        (tmp_path / "ca.crt").write_bytes((release.cluster.state / "pki" / "ca.crt").read_bytes())
        [container] = pod["spec"]["containers"]
        assert container["command"] == ["python3", "-c"]
        [program] = container["args"]
        assert ACCOUNT in program
        program = program.replace(ACCOUNT, str(tmp_path)).replace("SECONDS = 90", "SECONDS = 0")
        env = {each["name"]: each["value"] for each in container["env"]}
        host, port = release.cluster.server.removeprefix("https://").split(":")
        env |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "PATH": os.environ["PATH"]}

        def run():
            return subprocess.run(
                [sys.executable, "-I", "-c", program], env=env, capture_output=True, text=True, check=False
            )

        failed = run()
        assert failed.returncode == 1
        assert failed.stderr.strip() == "the operator is not available: no condition Available yet"
        available = {"type": "Available", "status": "True", "reason": "a", "message": "b"}
        answer = release.admin("PATCH", f"{DEPLOYMENT}/status", {"status": {"conditions": [available]}})
        assert answer.code == 200, answer.message
        passed = run()
        assert passed.returncode == 0, passed.stderr
        assert passed.stdout.strip() == "both kinds are served and the operator is available"
    finally:
        release.cluster.kubectl("delete", "-f", "-", input=yaml.safe_dump_all(rights))


def test_removing_the_release_keeps_the_kinds_and_installing_again_takes_them_over(release):
    created = release.admin("POST", CONFIGS, release.config("kept"))
    assert created.code == 201, created.message
    try:
        release.helm("uninstall")
        assert release.admin("GET", DEPLOYMENT).code == 404
        kept = release.admin("GET", f"{CONFIGS}/kept")
        assert kept.code == 200
        assert kept.body["metadata"]["uid"] == created.body["metadata"]["uid"]
        left = release.cluster.kubectl("get", EVERYWHERE, "-o", "name").split()
        assert sorted(name.partition("/")[2] for name in left if OPERATOR in name) == [AGENT, AGENT, NODE, NODE]
        assert OPERATOR not in release.cluster.kubectl("get", "roles,rolebindings", "-n", "default", "-o", "name")
        # a pod that the DaemonSet controller makes now is admitted, and its agent can report
        agent = release.agent_on("left-1")
        made = agent("POST", INVENTORIES, release.inventory("left-1", config="kept"))
        assert made.code == 201, made.message
        assert "own node only" in agent("POST", INVENTORIES, release.inventory("other", config="kept")).message
    finally:
        release.helm("install")
        release.wait_for_image_policy(refuses=True)
        release.admin("DELETE", f"{CONFIGS}/kept")
        release.admin("DELETE", f"{INVENTORIES}/kept.left-1")
    assert release.admin("GET", DEPLOYMENT).code == 200
    accounts = release.admin("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{AGENT}")
    assert accounts.body["metadata"]["annotations"]["meta.helm.sh/release-name"] == "do"


def test_an_upgrade_is_rolled_back(release):
    """As docs/upgrade.md says, without --wait: no controller runs."""
    created = release.admin("POST", CONFIGS, release.config("stays"))
    assert created.code == 201, created.message

    def level():
        return "debug" in str(release.admin("GET", DEPLOYMENT).body["spec"]["template"])

    try:
        before = release.cluster.helm("history", "do", "-n", NAMESPACE)
        release.cluster.helm(
            "upgrade",
            "do",
            str(CHART),
            "-n",
            NAMESPACE,
            "--reset-then-reuse-values",
            "--set",
            "operator.log.level=debug",
        )
        assert level()
        release.cluster.helm("rollback", "do", "-n", NAMESPACE)
        assert not level()
        assert len(release.cluster.helm("history", "do", "-n", NAMESPACE).splitlines()) == len(before.splitlines()) + 2
        stays = release.admin("GET", f"{CONFIGS}/stays")
        assert stays.body["metadata"]["uid"] == created.body["metadata"]["uid"]
    finally:
        release.admin("DELETE", f"{CONFIGS}/stays")


def test_without_keep_removing_the_release_removes_all_of_it(release):
    release.helm("upgrade", "crds.keep=false")
    try:
        release.helm("uninstall")
        for kinds, where in ((EVERYWHERE, []), ("serviceaccounts,roles,deployments", ["-n", NAMESPACE])):
            assert OPERATOR not in release.cluster.kubectl("get", kinds, *where, "-o", "name")

        def gone():
            return "device-operator.io" not in release.cluster.kubectl("get", "crds", "-o", "name")

        release.eventually("the kinds are gone", gone)
    finally:
        release.helm("install")
        release.wait_for_image_policy(refuses=True)


def test_the_operators_pods_are_admitted_where_only_restricted_ones_are(release):
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespaces = "/api/v1/namespaces"
    assert release.admin("POST", namespaces, {"metadata": {"name": "strict", "labels": level}}).code == 201
    account = {"metadata": {"name": "do-device-operator"}}
    assert release.admin("POST", f"{namespaces}/strict/serviceaccounts", account).code == 201
    spec = release.admin("GET", DEPLOYMENT).body["spec"]["template"]["spec"]
    pods = f"{namespaces}/strict/pods?dryRun=All"
    admitted = release.admin("POST", pods, {"metadata": {"name": "operator"}, "spec": spec})
    assert admitted.code == 201, admitted.message
    spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert "violates PodSecurity" in release.admin("POST", pods, {"metadata": {"name": "lax"}, "spec": spec}).message
