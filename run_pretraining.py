"""Pretrains a NextLevelBERT, HATE or CDLM: documents → chunk vectors on disk → masked vector modelling → checkpoint.

From text (encoded once into ``corpus_dir``; a run that is killed continues where it stopped):

    python run_pretraining.py --train_file books.jsonl --corpus_dir books_vectors --output_dir model --do_train

On several processes or machines, which share the encoding and the training (see docs/scaling.md):

    torchrun --nproc_per_node 2 run_pretraining.py --train_file books.jsonl --output_dir model --do_train

``--model_type hate`` makes a chunk of every sentence and trains a new document model over them, of any size:

    python run_pretraining.py --model_type hate --hidden_size 64 --train_file books.jsonl --output_dir hate --do_train

``--objective contrastive`` learns which segments belong to one document, ``both`` adds masked vectors; with
``--pooling residual`` and ``--whiten_chunks`` document vectors start at the mean of whitened chunk vectors:

    python run_pretraining.py --objective contrastive --pooling residual --whiten_chunks --train_file books.jsonl \\
        --per_device_train_batch_size 64 --output_dir model --do_train

``--model_type cdlm`` masks words in sets of related documents and gives them global attention:

    python run_pretraining.py --model_type cdlm --model FacebookAI/roberta-base --dataset_name alexfabbri/multi_news \\
        --validation_split validation --bf16 --output_dir cdlm

Without ``--do_train`` the documents are only encoded; without documents a finished ``corpus_dir`` is read. Options may
stand in a YAML or JSON file: ``run_pretraining.py options.yaml``. Every option: ``--help``, with the ``--model_type``.
A pip install has this script as ``nextlevelbert-pretrain``.
"""

from nextlevelbert.pretraining.run import main

if __name__ == "__main__":
    main()
