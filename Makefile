# Each target does all the set-up it needs; the virtual environment is .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup test fuzz faults scale lint format audit demo docs bench figures constraints clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY) ## Create .venv with everything pinned in constraints.txt

# torch first and by itself: its plain version picks up a CPU build wherever one is configured.
$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV): some hundred megabytes the first time, which takes a few minutes"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

test: $(READY) ## Run the tests, offline, on two cores
	OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 -q $(TEST_ARGS)

faults: $(READY) ## Kill, starve and damage real runs and other jobs some 900 times: FAULTS_ARGS="--seed 1"
	cd tests && OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 ../$(BIN)/python -m faults $(FAULTS_ARGS)

fuzz: $(READY) ## Try 20,000 malformed inputs on every reader: FUZZ_ARGS="--seed 1"
	cd tests && HF_HUB_OFFLINE=1 ../$(BIN)/python -m fuzz --cases 20000 $(FUZZ_ARGS)

scale: $(READY) ## Do one run in two ranks, two workers and on a Ray cluster that loses a node, and compare
	cd tests && OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 ../$(BIN)/python -m scale

lint: $(READY) ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

audit: $(READY) ## Look for known weaknesses in what constraints.txt pins; needs a network
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

demo: $(READY) ## Answer questions about Python, then teach two models, in minutes: MODEL=folder OUT=folder
	$(BIN)/trans-encoder demo $(if $(MODEL),--model $(MODEL)) $(if $(OUT),--out $(OUT))

docs: $(READY) ## Build the documentation site in build/site, without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

bench: $(READY) ## Time a cycle against the published procedure: BENCH_ARGS="--model M --data-dir D"
	$(BIN)/python benchmarks/cycle.py $(BENCH_ARGS)

figures: $(READY) ## Check the figures quoted in the documentation against stored results, and list their commands
	$(BIN)/python benchmarks/figures.py

constraints: $(READY) ## Pin what is installed now in constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > constraints.txt
	touch $(READY)

clean: ## Remove the virtual environment and every cache
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist .demo
