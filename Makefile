# Setup, demo and tests. They need Python 3.10 or newer, pip and make: `make demo`, `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What docs/start.md needs, and everything.
FIRST_EXTRAS := dashboard,video,box2d
EXTRAS := dev,tensorboard,video,plots,dashboard,box2d,mujoco,atari,docs,notebooks,ray
LOCK_EXTRAS := tensorboard video plots dashboard box2d mujoco atari ray
COMMA := ,
FIRST_STAMP := $(VENV)/.first-installed
STAMP := $(VENV)/.installed
WORKERS ?= 2
SOAK_MINUTES ?= 30
PYTHON312 ?= python3.12
# One thread per test worker: with more, the workers compete for the cores.
TEST_ENVIRONMENT := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help install setup demo lint format test suite docs test-slow trackers envpool rllib drills soak smoke browser-test floors bench-setup bench-puffer bench-cleanrl bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

install: $(FIRST_STAMP) ## create .venv with what docs/start.md needs, pinned: training, dashboard, videos, Box2D

setup: $(STAMP) ## create .venv with everything, pinned: all extras and the development tools

# $(call install_extras,EXTRAS,SIZE,OPTIONS)
define install_extras
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
		echo "$(PYTHON) was not found: install Python 3.10 or newer, or run: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "rl_training needs Python 3.10 or newer, $(PYTHON) is" \
			"$$($(PYTHON) -c 'import platform; print(platform.python_version())'):" \
			"run again with PYTHON=python3.11 (or newer)" >&2; \
		exit 1; }
	@echo "installing into $(VENV): a few minutes the first time, $(2); on Linux, PyPI's PyTorch brings 4 GB more;" \
		"to choose the CPU build: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make $(MAKECMDGOALS)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet $(3) \
		--constraint constraints.txt --editable ".[$(1)]"
endef

# Python compiles a module when it is first imported. To compile all of them here would take longer than to unpack them.
$(FIRST_STAMP): pyproject.toml constraints.txt
	$(call install_extras,$(FIRST_EXTRAS),1.1 GB,--no-compile)
	@touch $@

# It contains what `make install` brings.
$(STAMP): pyproject.toml constraints.txt
	$(call install_extras,$(EXTRAS),2.2 GB)
	@touch $@ $(FIRST_STAMP)

demo: install ## train PPO to a solved CartPole, evaluate it, write demo.gif
	$(BIN)/rl-training train ppo/cartpole
	$(BIN)/rl-training eval latest --episodes 20
	$(BIN)/rl-training play latest --gif demo.gif

lint: setup ## ruff (rules and format) and strict mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## fix what ruff can fix, and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint suite ## lint, then the test suite

suite: setup ## the test suite without lint
	$(TEST_ENVIRONMENT) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

docs: setup ## build the documentation site, offline, into build/docs/html
	$(BIN)/python scripts/build_docs.py

test-slow: setup ## the long tests: short learning runs
	$(TEST_ENVIRONMENT) $(BIN)/python -m pytest -m slow -n $(WORKERS) --dist loadgroup

# On top of .venv, so that PyTorch is not installed twice. Trackio refuses the newest Pillow, hence no pin for it.
trackers: setup ## test W&B, MLflow and Trackio with their real packages (300 MB more, in an environment of its own)
	@test -x .venv-trackers/bin/python || $(BIN)/python -m venv .venv-trackers
	@mkdir -p build && grep -v '^pillow' constraints.txt > build/tracker_constraints.txt
	@$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> "$$(.venv-trackers/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/below.pth"
	.venv-trackers/bin/python -m pip install --disable-pip-version-check --quiet \
		--constraint build/tracker_constraints.txt wandb mlflow-skinny sqlalchemy alembic trackio
	RL_TRAINING_TRACKERS=all $(TEST_ENVIRONMENT) .venv-trackers/bin/python -m pytest tests/telemetry/test_real_trackers.py

envpool: ## test EnvPool's envs against Gymnasium's, in an environment of its own (needs Python 3.12 or newer, PYTHON312=)
	@test -x .venv-envpool/bin/python || $(PYTHON312) -m venv .venv-envpool
	.venv-envpool/bin/python -m pip install --disable-pip-version-check --quiet --editable ".[envpool,mujoco]" pytest hypothesis
	$(TEST_ENVIRONMENT) .venv-envpool/bin/python -m pytest tests/envs/test_envpool.py

# On top of .venv, so that PyTorch and Ray are not installed twice. RLlib pins an older Gymnasium, which comes first.
rllib: setup ## RLlib for `python benchmarks/rllib.py`, in an environment of its own (430 MB more)
	@test -x .venv-rllib/bin/python || $(BIN)/python -m venv .venv-rllib
	@$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> "$$(.venv-rllib/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/below.pth"
	.venv-rllib/bin/python -m pip install --disable-pip-version-check --quiet "ray[rllib]" torch==2.13.0

drills: setup ## reliability drills (Linux, under 20 minutes); they write their figures into docs/reliability.md
	$(TEST_ENVIRONMENT) $(BIN)/python -m pytest drills --whole -n $(WORKERS) --dist loadgroup

soak: setup ## watch memory, files and processes of three runs for SOAK_MINUTES=30 each (about an hour in all)
	$(TEST_ENVIRONMENT) $(BIN)/python -m pytest drills/test_soak.py --whole --soak-minutes $(SOAK_MINUTES) \
		-n $(WORKERS) --dist loadgroup

smoke: setup ## build the wheel, install it into an empty environment, import it and train a few steps
	rm -rf build/smoke
	$(BIN)/python -m build --no-isolation --outdir build/smoke .
	$(PYTHON) -m venv build/smoke/venv
	build/smoke/venv/bin/python -m pip install --disable-pip-version-check --quiet \
		--constraint constraints.txt build/smoke/*.whl
	cd build/smoke && venv/bin/python -c "import rl_training; print(rl_training.__version__, rl_training.PPO)"
	cd build/smoke && venv/bin/rl-training train ppo/cartpole --total-timesteps 2000 --quiet --json

browser-test: setup ## dashboard and docs in a real browser: Chromium or Chrome by its path (or BROWSER=/path/to/it)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable ".[browser]"
	$(TEST_ENVIRONMENT) $(BIN)/python -m pytest browser -m "slow or not slow" -s

floors: setup ## test the oldest and the newest versions of the dependencies, each in an environment of its own
	$(BIN)/python scripts/check_floors.py

bench-setup: setup ## install the peers of the speed benchmark into a separate environment
	@test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --disable-pip-version-check --quiet \
		--constraint constraints.txt --editable ".[bench,atari,box2d,mujoco]"

bench-puffer: setup ## build PufferLib for the speed benchmark in a separate environment (needs gcc)
	$(BIN)/python benchmarks/puffer_setup.py

# On top of .venv, so that PyTorch is not installed twice. CleanRL itself is a checkout: CLEANRL=/path/to/it, or .cleanrl.
bench-cleanrl: setup ## what CleanRL's programs need for `rl-training zoo clock` and `make bench`, in a separate environment
	@test -x .venv-cleanrl/bin/python || $(BIN)/python -m venv .venv-cleanrl
	@$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> "$$(.venv-cleanrl/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/below.pth"
	.venv-cleanrl/bin/python -m pip install --disable-pip-version-check --quiet \
		"gymnasium==0.29.1" "numpy<2" tyro "envpool==0.8.4" "gym==0.23.1"

bench: bench-setup ## compare speed with the peers; run nothing else on the machine
	$(BIN)/python benchmarks/speed.py

lock: ## write requirements.lock: exact versions with hashes, for `pip install --require-hashes`
	@test -x build/lock/bin/uv || { $(PYTHON) -m venv build/lock && \
		build/lock/bin/python -m pip install --disable-pip-version-check --quiet uv; }
	build/lock/bin/uv pip compile pyproject.toml --universal --python-version 3.10 --generate-hashes --quiet \
		--no-annotate --no-header --no-emit-index-url --constraint constraints.txt $(LOCK_EXTRAS:%=--extra %) \
		--output-file build/lock/requirements.txt
	{ printf '%s\n' "# Exact versions and hashes of rl_training[$(subst $() $(),$(COMMA),$(LOCK_EXTRAS))], written by make lock." \
		"# pip install --require-hashes --requirement requirements.lock && pip install --no-deps rl_training"; \
		cat build/lock/requirements.txt; } > requirements.lock

clean: ## remove .venv, builds, caches and demo.gif; keep runs/
	rm -rf $(VENV) .venv-bench .venv-puffer .venv-cleanrl .venv-trackers .venv-envpool .venv-rllib build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis demo.gif
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
