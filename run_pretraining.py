"""Pretrains a NextLevelBERT, HATE or CDLM: documents → chunk vectors on disk → masked vector
modelling → checkpoint.

    python run_pretraining.py --train_file books.jsonl --corpus_dir books_vectors --output_dir model
    --do_train python run_pretraining.py --model_type hate --hidden_size 64 --train_file books.jsonl
    --output_dir hate --do_train python run_pretraining.py --model_type cdlm --model
    FacebookAI/roberta-base --train_file sets.jsonl --do_train

A run that is killed goes on where it stopped. Without ``--do_train`` documents are only encoded;
without documents a finished ``--corpus_dir`` is read. ``torchrun --nproc_per_node 2
run_pretraining.py …`` shares encoding and training. Options may stand in a YAML or JSON file,
``run_pretraining.py options.yaml``; ``--recipe paper`` sets what the paper names. Every option:
``--help``, with --model_type. A pip install has this script as ``nextlevelbert-pretrain``.
"""

from nextlevelbert.pretraining.vectors import main

if __name__ == "__main__":
    main()
