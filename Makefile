# Two commands matter: `make run` and `make test`. Everything they need is installed below .venv and var.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
PROMTOOL := var/tools/usr/bin/promtool
# Distributions beside the service's own; of the integrations those that add to the service by entry points.
PARTS := packaging/client packaging/profiler packaging/lab packaging/research \
  $(patsubst %/pyproject.toml,%,$(shell grep -l 'entry-points."cotenant' integrations/*/pyproject.toml))
# An installation that broke off, on a full disk or by Ctrl-C, leaves libraries that look installed and are not whole.
BROKE_OFF := $(VENV)/.broke-off
AGAIN = $(if $(wildcard $(BROKE_OFF)),--reinstall)
# A user without a home that may be written to gets the same without a cache.
UV_CACHE = $(shell mkdir -p "$${UV_CACHE_DIR:-$${XDG_CACHE_HOME:-$$HOME/.cache}/uv}" 2>/dev/null || echo --no-cache)
KRONOS_PYTHON := python3.12
UNPACKED := prometheus victoria-metrics prometheus-node-exporter prometheus-libvirt-exporter
CREATE_CLUSTER := /etc/postgresql-common/createcluster.conf
LAB_TOOLS := nginx-light wrk fio sysbench iperf3 redis-server redis-tools openarena-server qstat iproute2 procps cgroup-tools libvirt-clients openssl netpipe-tcp sockperf qemu-system-common libnbd-bin e2fsprogs mount
GUEST_TOOLS := qemu-system-x86 seabios busybox-static e2fsprogs nginx-light wrk fio sysbench iperf3 iproute2 procps
RUN_QUEUE := build/cotenant-run-queue
RUN_QUEUE_SOURCES := profiler/backends/run_queue
RUN_QUEUE_TOOLS := clang gcc libc6-dev libbpf-dev libelf-dev zlib1g-dev
CADVISOR := var/tools/usr/bin/cadvisor
HELM := var/tools/usr/bin/helm
TOFU := var/tools/usr/bin/tofu
PROVIDER := integrations/terraform
SCHEDULER := integrations/kubernetes/scheduler
SCHEDULER_MODULES := go.mod go-1.36.mod
CHART := integrations/kubernetes/chart
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -o tmp_path_retention_policy=failed
BASE ?= main
SHORT := -m "not measured and not lab" --ignore tests/browser
# Distributions beside the service, the agent and the client; none of these three imports them.
BESIDE := tests/lab tests/research integrations
CONTAINER_TOOLS := podman crun busybox-static iproute2 util-linux perl
IMAGE_TOOLS := buildah podman crun mmdebstrap util-linux
LIBVIRT_TOOLS := libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients qemu-system-x86 seabios ipxe-qemu busybox-static cpio \
  wrk iproute2 util-linux libvirt-dev pkg-config gcc libc6-dev

# Programs that tests start would else compile all their modules each time, and so would each worker of pytest.
export PYTHONDONTWRITEBYTECODE :=

# Debian and Ubuntu, as root; elsewhere the tests that need the tools skip and say so.
define apt_install
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  missing=""; for tool in $(1); do dpkg -s $$tool >/dev/null 2>&1 || missing="$$missing $$tool"; done; \
	  if [ -n "$$missing" ]; then \
	    echo "installing$$missing"; \
	    flock Makefile apt-get update -qq && DEBIAN_FRONTEND=noninteractive flock Makefile apt-get install -y -qq --no-install-recommends $$missing >/dev/null \
	      || echo "could not install$$missing: tests that need them will skip"; \
	  fi; \
	fi
endef

.PHONY: run test test-beside generated test-real test-measured test-libvirt test-cluster test-guests test-xen test-faults test-fuzz test-openstack test-kubernetes kubevirt peers test-scenarios test-image test-wheels test-shown test-floors lint setup lab-tools server-tools bench docs wheels agent run-queue scheduler-plugin manifests release tag clean compiled collected style types contracts tests test-changed test-ansible terraform-provider
.DEFAULT_GOAL := help

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/.ready  ## install the pinned dependencies into .venv

$(VENV)/.ready: requirements.lock packaging/uv.txt pyproject.toml models/physics/cpu_contention.c models/learning/trees.c $(PARTS:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  is=$$(command -v $(PYTHON) >/dev/null && $(PYTHON) -V 2>&1 | tail -n 1 || echo "not there"); \
	  echo "Cotenant needs Python 3.11 or newer, and $(PYTHON) is $$is: name another, PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -c 'import ensurepip' 2>/dev/null \
	  || { echo "Python's ensurepip is missing: apt-get install python3-venv" >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@touch $(BROKE_OFF)
	$(BIN)/python -m pip install $(if $(AGAIN),--force-reinstall) --quiet --disable-pip-version-check --require-hashes -r packaging/uv.txt
	@# uv takes seconds where pip takes a minute, and reads no pip.conf: who needs one gets the same by pip
	$(BIN)/uv pip install $(UV_CACHE) $(AGAIN) --quiet --python $(BIN)/python --require-hashes -r requirements.lock \
	  || $(BIN)/python -m pip install $(if $(AGAIN),--force-reinstall) --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@rm -rf *.egg-info  # what an older build left there, and programs that start here would read
	$(BIN)/uv pip install $(UV_CACHE) --quiet --python $(BIN)/python --no-deps --no-build-isolation $(PARTS:%=-e %) -e .
	@$(BIN)/python -c 'import lightgbm' 2>/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq libgomp1 >/dev/null \
	  || { echo "LightGBM needs the system's OpenMP library: apt-get install libgomp1" >&2; exit 1; }; }
	@rm -f $(BROKE_OFF)
	touch $@

run: setup  ## load the example cloud, start the service on 127.0.0.1:8080, print the answer to an example question
	@BIN=$(BIN) bash examples/run.sh

# Nothing here depends on how fast or how quiet the machine is, so that tests share two CPUs, with each other and with
# mypy, which as one process takes a fifth less than as two: while it checks types, modules are compiled, and then a third
# worker computes while others wait. Files go out in their order: with those of many tests first, the slow ones that have
# few would come last and leave a CPU idle. Databases sync thousands of times: they lie in memory where there are 2 GB for them
# and programs may run from there.
test: export TMPDIR := $(shell ! grep -q '^[^ ]* /dev/shm .*noexec' /proc/mounts 2>/dev/null && [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 2000000 ] 2>/dev/null && echo /dev/shm || echo "$${TMPDIR:-/tmp}")
test: export PATH := $(CURDIR)/$(dir $(PROMTOOL)):$(PATH)
test: setup lab-tools server-tools  ## lint, types, and the tests of the service, the agent and the client
	@$(MAKE) --no-print-directory --jobs 2 style contracts
	@$(MAKE) --no-print-directory --jobs 2 --keep-going types tests

tests: setup collected
	$(PYTEST) $(SHORT) tests $(BESIDE:%=--ignore %)

test-beside: setup lab-tools server-tools  ## the tests of the lab, of research and of the packages under integrations/
	$(PYTEST) $(SHORT) $(BESIDE)

test-changed: setup collected  ## what a change can break by what imports it, since BASE=main; whatever else it breaks, `make test` says
	$(PYTEST) $(SHORT) $$($(BIN)/python -m tests.affected $(BASE))

test-real: setup lab-tools server-tools $(CADVISOR) var/pve-exporter/.ready  ## the lab's real processes, control groups and networks (root), and pages in Chromium
	$(call apt_install,$(CONTAINER_TOOLS) $(RUN_QUEUE_TOOLS))
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "lab and not measured"
	$(BIN)/python -m pytest -m "not measured" tests/browser

$(CADVISOR): tests/servers/cadvisor/main.go tests/servers/cadvisor/go.sum
	@command -v go >/dev/null && mkdir -p $(@D) && cd tests/servers/cadvisor \
	  && CGO_ENABLED=0 go build -trimpath -ldflags=-s -o $(CURDIR)/$@ . \
	  || echo "could not build cAdvisor with Go: the tests that need it will skip"

var/pve-exporter/.ready: tests/servers/pve_exporter.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $< && touch $@ \
	  || echo "could not get prometheus-pve-exporter: the test that needs it will skip"

generated: setup  ## write anew what is made from the code: references, types of clients, completions
	@$(BIN)/python -c 'import shtab' 2>/dev/null || $(BIN)/uv pip install --quiet --python $(BIN)/python shtab==1.13.0
	$(BIN)/python -m profiler.definitions > docs/metrics.md
	$(BIN)/python -m docs.site.reference
	$(BIN)/python packaging/client_schemas.py
	$(BIN)/python packaging/go_clients.py
	$(BIN)/python packaging/completions.py

test-measured: setup lab-tools server-tools  ## tests of real time, rates and scheduling: alone on the machine, up to three tries
	$(BIN)/python -m pytest -m measured

test-libvirt: setup lab-tools  ## real guests under a libvirtd of the test's own (Debian, root); downloads a kernel once
	$(call apt_install,$(LIBVIRT_TOOLS))
	@pkg-config --exists libvirt 2>/dev/null && $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes --no-deps --no-build-isolation -r tests/libvirt/requirements.txt \
	  || echo "libvirt-python could not be built: the tests will skip"
	COTENANT_TEST_LIBVIRT=1 $(BIN)/python -m pytest tests/libvirt

test-cluster: setup  ## training and replays on the workers of a real Dask cluster on loopback; downloads Dask
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --require-hashes -r tests/cluster/requirements.txt \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r tests/cluster/requirements.txt
	$(BIN)/python -m pytest tests/models/test_models_executor.py tests/models/test_models_training_workers.py tests/advisor/replay/test_replay_spread.py

test-guests: setup  ## the lab's own guests in QEMU, KVM or not (Debian, root); downloads a kernel once
	$(call apt_install,$(GUEST_TOOLS))
	COTENANT_TEST_GUESTS=1 $(BIN)/python -m pytest tests/guests

test-xen: setup  ## real Xen with Dom0 and two guests inside QEMU (Debian, root); builds its root file system once
	COTENANT_TEST_XEN=1 $(BIN)/python -m pytest tests/xen

test-faults: setup server-tools  ## killed, crowded, without disk or database: real processes, alone on the machine
	COTENANT_TEST_FAULTS=1 $(BIN)/python -m pytest tests/faults

test-fuzz: setup  ## every operation of a real service asked thousands of generated questions, and property tests and kills with all their cases
	COTENANT_TEST_FUZZ=1 $(BIN)/python -m pytest tests/fuzz
	COTENANT_TEST_FUZZ=1 $(PYTEST) -m "(hypothesis or exhaustive) and not measured and not lab" --ignore tests/fuzz

test-image: setup  ## the image, built and run by buildah and podman (Debian, root): served, killed, told to stop
	$(call apt_install,$(IMAGE_TOOLS))
	COTENANT_TEST_IMAGE=1 $(BIN)/python -m pytest tests/image

test-openstack: setup lab-tools  ## a real OpenStack with 100 simulated computes asks and is read (Debian, root once); installs it once
	COTENANT_TEST_OPENSTACK=1 $(BIN)/python -m pytest tests/openstack
	COTENANT_TEST_WATCHER_PYTHON=var/openstack-lab/venv/bin/python $(BIN)/python -m pytest tests/research/test_watcher.py integrations/openstackclient

test-kubernetes: setup server-tools  ## real kube-apiservers and kube-schedulers with sync, extender and plug-in (Debian): each version that is built, else the newest, built once with Go
	$(call apt_install,openssl util-linux $(if $(shell command -v go),,golang-go))
	COTENANT_TEST_KUBERNETES=1 $(BIN)/python -m pytest tests/kubernetes

kubevirt: setup  ## KubeVirt's virt-controller for test-kubernetes: builds it once with Go, in about three minutes of CPU
	$(call apt_install,$(if $(shell command -v go),,golang-go))
	$(BIN)/python -m tests.kubernetes.build_kubevirt

test-ansible: setup var/ansible/.ready  ## playbooks of the collection, by a real ansible-core that asks a real service; installs it once
	$(BIN)/python -m pytest tests/integrations/test_ansible.py

var/ansible/.ready: tests/servers/ansible.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $< && touch $@ \
	  || echo "could not get ansible-core: the tests that need it will skip"

peers:  ## ProxLB with its solver, Watcher and Kronos, each in an environment of its own, for python -m research.benchmarks.peers (1 GB)
	for each in proxlb watcher kronos; do \
	  test -x var/peers/$$each/bin/python || $$(test $$each = kronos && echo $(KRONOS_PYTHON) || echo $(PYTHON)) -m venv var/peers/$$each || exit 1; \
	  var/peers/$$each/bin/python -m pip install --quiet --disable-pip-version-check -r research/benchmarks/peers/$$each.txt || exit 1; \
	done

test-scenarios: setup lab-tools  ## advice followed on real containers (root, a quiet machine): better for who suffered?
	COTENANT_TEST_SCENARIOS=1 $(BIN)/python -m pytest tests/scenarios

# Modules of tests with their assertions rewritten: each worker of pytest would else rewrite all of them. A few that are
# newer than the last time they rewrite sooner than one process that imports all.
collected: compiled
	@test -e $(VENV)/.collected && test "$$(find tests integrations -name '*.py' -newer $(VENV)/.collected | wc -l)" -lt 60 || { \
	  $(BIN)/python -m pytest --collect-only -qq $(SHORT) tests $(BESIDE:%=--ignore %) >/dev/null; touch $(VENV)/.collected; }  # what is wrong the tests themselves will say

compiled: setup
	@$(BIN)/python -m tests.compile_loops

lint: types contracts style

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

lab-tools:  ## install what the lab runs; what would start a server of the system's own is only unpacked
	$(call apt_install,$(LAB_TOOLS))
	@! command -v apt-get >/dev/null || for package in $(UNPACKED); do \
	  test -x var/tools/usr/bin/$$package || ( \
	    mkdir -p var/tools && cd var/tools && apt-get download -qq $$package && dpkg -x $${package}_*.deb . && rm $${package}_*.deb \
	  ) 2>/dev/null || echo "could not get $$package: the test that needs it will skip"; \
	done

server-tools:  ## install PostgreSQL, nginx and Chromium, of which tests start instances of their own, and systemd, which judges units
	$(call apt_install,postgresql-common)
	@# its main package would make and start a server of the system's own
	@dpkg -s postgresql >/dev/null 2>&1 || ! test -w $(CREATE_CLUSTER) || \
	  sed -i -E 's/^#? *create_main_cluster *=.*/create_main_cluster = false/' $(CREATE_CLUSTER)
	$(call apt_install,postgresql nginx-light chromium fonts-dejavu-core systemd)

bench: setup  ## measure speed and quality of placement; prints tables
	$(BIN)/python -m research.benchmarks.decision
	$(BIN)/python -m research.benchmarks.unlike_hosts
	$(BIN)/python -m research.benchmarks.http_load --unlike --sizes 100 --rates 100
	$(BIN)/python -m research.benchmarks.placement
	$(BIN)/python -m research.benchmarks.agent_cost
	$(BIN)/python -m research.benchmarks.agent_overhead

docs: $(VENV)/.docs  ## the documentation as a site in var/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --clean

$(VENV)/.docs: docs/site/requirements.txt | setup
	test -x $(VENV)/docs/bin/python || $(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

test-wheels: setup  ## the wheels, built, installed in environments of their own and used there; downloads what they need
	$(call apt_install,zsh fish)
	COTENANT_TEST_WHEELS=1 $(BIN)/python -m pytest tests/packaging/test_wheels.py tests/packaging/test_build_release.py tests/packaging/test_completions.py

test-shown: setup  ## what documents show below commands, compared with what they print; trains a model once, in minutes
	@test -d var/shown/models || { export COTENANT_STATE_DIR=var/shown COTENANT_DATABASE=sqlite:///$(CURDIR)/var/shown.sqlite3; \
	  $(BIN)/cotenant db upgrade && $(BIN)/cotenant train $(addprefix --dataset datasets/lab-pairs,"" -xeon-2cpu -shared-xeon-2cpu); }
	COTENANT_TEST_TRAINED=$(CURDIR)/var/shown $(BIN)/python -m pytest tests/docs/test_shown_outputs.py

# Only what pyproject.toml names is at its floor. What those libraries need themselves is the newest that they take, so
# that an old one may warn of it: warnings are no failures here.
test-floors:  ## the lowest versions that pyproject.toml allows: unit tests of models, advisor core and API with them; downloads them
	rm -rf var/floors && $(PYTHON) -m venv var/floors
	var/floors/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r packaging/uv.txt
	var/floors/bin/uv pip install --quiet --python var/floors/bin/python --resolution lowest-direct \
	  $(PARTS:%=-e %) -e '.[all,dev]'
	var/floors/bin/python -m pytest -o filterwarnings=default -m "not measured" tests/models tests/advisor/core tests/api

wheels: setup  ## build the wheels of all distributions, in build/wheels
	@rm -rf build/lib build/lib.* packaging/*/build integrations/*/build build/wheels/cotenant*.whl  # setuptools would pack what an earlier build left there
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --wheel-dir build/wheels $(PARTS:%=./%) .
	@rm -rf *.egg-info

release: setup  ## build what a version publishes, twice, and write it with checksums to build/release if both are alike; pushes nothing
	$(BIN)/python packaging/build_release.py

tag: setup  ## tag the version that all distributions and the changelog agree on; pushes nothing
	$(BIN)/python packaging/release.py

agent: setup  ## build the agent as one file, build/cotenant-profiler.pyz
	$(BIN)/python packaging/build_agent.py

run-queue:  ## build what watches run queues by BPF beside the agent, build/cotenant-run-queue (Debian: as root once, for its tools)
	$(call apt_install,$(RUN_QUEUE_TOOLS))
	@$(MAKE) --no-print-directory $(RUN_QUEUE)

# The BPF program finds its way on any kernel with BTF (CO-RE); linked statically, the file runs on any host of this architecture.
$(RUN_QUEUE): $(addprefix $(RUN_QUEUE_SOURCES)/run_queue.,bpf.c c h)
	@mkdir -p $(@D)
	clang -g -O2 -Wall -Werror -target bpf -I/usr/include/$$($(CC) -print-multiarch) -c $(RUN_QUEUE_SOURCES)/run_queue.bpf.c -o $@.o
	$(CC) -O2 -Wall -Wextra -Werror -static -DOBJECT='"$@.o"' $(RUN_QUEUE_SOURCES)/run_queue.c -lbpf -lelf -lz -o $@
	@rm $@.o

# An older Go, from 1.21 on, fetches the one that is needed. Two packages at a time take 2 GiB of memory.
scheduler-plugin: export GOTOOLCHAIN := auto
scheduler-plugin: export GOFLAGS := -p=2 -trimpath
scheduler-plugin: export CGO_ENABLED := 0
scheduler-plugin: setup $(HELM)  ## kube-scheduler with Cotenant's plug-in for the two newest minors, and the Helm chart, tested: build/scheduler (Go 1.26)
	$(call apt_install,$(if $(shell command -v go),,golang-go))
	@test -z "$$(gofmt -l $(SCHEDULER))" || { echo "gofmt -w $(SCHEDULER)" >&2; exit 1; }
	GOFLAGS=-p=2 $(BIN)/python packaging/go_clients.py --check
	@mkdir -p build/scheduler
	@set -e; cd $(SCHEDULER); for module in $(SCHEDULER_MODULES); do \
	  version=$$(go list -modfile=$$module -m -f '{{.Version}}' k8s.io/kubernetes); echo "kube-scheduler $$version"; \
	  minor=$${version#v}; minor=$${minor%.*}; \
	  go vet -modfile=$$module ./...; \
	  go test -modfile=$$module ./...; \
	  go build -modfile=$$module -o $(CURDIR)/build/scheduler/cotenant-scheduler-$$minor -ldflags "-s -w \
	    -X k8s.io/component-base/version.gitVersion=$$version+cotenant \
	    -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$${minor#1.}" .; \
	done
	COTENANT_TEST_KUBERNETES=1 $(BIN)/python -m pytest tests/integrations/test_scheduler_plugin.py tests/packaging/test_kubernetes_chart.py

$(HELM): tests/servers/helm/go.sum
	@command -v go >/dev/null && mkdir -p $(@D) && cd tests/servers/helm \
	  && GOTOOLCHAIN=auto GOFLAGS=-p=2 CGO_ENABLED=0 go build -trimpath -ldflags=-s -o $(CURDIR)/$@ helm.sh/helm/v4/cmd/helm \
	  || echo "could not build helm with Go: the tests that need it will skip"

terraform-provider: export GOTOOLCHAIN := auto
terraform-provider: export GOFLAGS := -p=2 -trimpath
terraform-provider: export CGO_ENABLED := 0
terraform-provider: setup $(TOFU)  ## the provider for Terraform and OpenTofu, tested by a real OpenTofu: build/terraform (Go 1.26)
	$(call apt_install,$(if $(shell command -v go),,golang-go))
	@test -z "$$(gofmt -l $(PROVIDER))" || { echo "gofmt -w $(PROVIDER)" >&2; exit 1; }
	GOFLAGS=-p=2 $(BIN)/python packaging/go_clients.py --check
	@mkdir -p build/terraform && cd $(PROVIDER) && go vet ./... && go build -ldflags=-s -o $(CURDIR)/build/terraform/ .
	COTENANT_TEST_TERRAFORM=1 $(BIN)/python -m pytest tests/integrations/test_terraform.py

$(TOFU): tests/servers/tofu/go.sum
	@command -v go >/dev/null && mkdir -p $(@D) && cd tests/servers/tofu \
	  && GOTOOLCHAIN=auto GOFLAGS=-p=2 CGO_ENABLED=0 go build -trimpath -ldflags=-s -o $(CURDIR)/$@ github.com/opentofu/opentofu/cmd/tofu \
	  || echo "could not build OpenTofu with Go: the tests that need it will skip"

manifests: $(HELM)  ## what the chart makes of its values, for those without Helm: integrations/kubernetes/cotenant.yaml
	@{ echo '# Made by `make manifests` out of chart/. Put the names of your images in; docs/kubernetes.md says more.'; \
	  printf 'apiVersion: v1\nkind: Namespace\nmetadata: {name: cotenant}\n'; \
	  $(HELM) template cotenant $(CHART) --namespace cotenant --set tokens.existingSecret=cotenant-tokens; } > build/cotenant.yaml
	@mv build/cotenant.yaml integrations/kubernetes/cotenant.yaml

clean:  ## remove what setup and runs made
	rm -rf $(VENV) var build *.egg-info packaging/*/build packaging/*/*.egg-info
