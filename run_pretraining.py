"""Pretrains a NextLevelBERT or a HATE.

Documents → chunk vectors on disk → masked vector modelling → a checkpoint with its card:

    python run_pretraining.py --train_file books.jsonl --corpus_dir books_vectors \
        --output_dir model --do_train
    python run_pretraining.py --model_type hate --hidden_size 64 --train_file books.jsonl \
        --output_dir hate --do_train

If a run is interrupted, repeat the command to resume it. Without ``--do_train`` documents are only
encoded; without documents a finished ``--corpus_dir`` is read. ``torchrun --nproc_per_node 2
run_pretraining.py …`` shares encoding and training. Options may come from a YAML or JSON file,
``run_pretraining.py options.yaml``; ``--recipe paper`` sets what the paper names. ``--help`` with
``--model_type`` shows every option. An installed package has this script as
``nextlevelbert pretrain``.
"""

from nextlevelbert.pretraining.pretrain import main

if __name__ == "__main__":
    main()
