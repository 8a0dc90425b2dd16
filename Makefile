# Every target sets up what it needs. Slow things (cluster binaries, images) are built once into
# $XDG_CACHE_HOME/device-operator (default ~/.cache/device-operator) and used again.
VENV ?= .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready

.PHONY: demo demo-down check test soak bench images cli docs venv fmt lock help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 14

$(READY): requirements/dev.txt pyproject.toml scripts/venv.sh
	@scripts/venv.sh $(VENV)
	@touch $@

demo: $(READY) ## a real two-node Kubernetes with the product installed and real devices served (CLUSTER=existing CONTEXT=… REGISTRY=… uses yours)
	@PYTHONPATH=tests/cluster $(PY) -m localcluster demo

demo-down: $(READY) ## end the demo and leave nothing behind
	@PYTHONPATH=tests/cluster $(PY) -m localcluster demo-down

check: $(READY) ## static checks and unit tests, two minutes at most
	@$(PY) tests/levels.py check

test: $(READY) ## everything: check, agent, operator, cluster
	@$(PY) tests/levels.py all

soak: $(READY) ## hours: 20,000 random sequences of the device table, 300 random faults on a real cluster
	@$(PY) tests/levels.py soak

bench: $(READY) ## measure against the budgets; exits non-zero beyond them
	@$(PY) tests/levels.py bench

images: $(READY) ## build both images from the Dockerfiles
	@PYTHONPATH=tests/cluster $(PY) -m localcluster images --out dist

cli: $(READY) ## kubectl-devices as one file, and the archive and manifest for krew, in dist
	@$(PY) scripts/cli_archive.py

docs: $(READY) ## the guides as a site, in dist/site
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

venv: $(READY) ## the programs device-operator, device-agent and kubectl-devices in .venv/bin

fmt: $(READY) ## format the code
	@$(VENV)/bin/ruff format . && $(VENV)/bin/ruff check --fix .

lock: ## write the lock files anew (needs uv on PATH)
	@requirements/lock.sh
