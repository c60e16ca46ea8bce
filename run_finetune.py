"""Fine-tunes a long-document encoder on a task, or searches with it, and compares it with plain baselines.

Classification of documents, alone or with a question each; multiple choice about documents; retrieval (no training):

    python run_finetune.py --task classification --model my-model --train_file train.jsonl --test_file test.jsonl \\
        --seeds 0 1 2 3 4 --output_dir classifier
    python run_finetune.py --task multiple_choice --model my-model --train_file QuALITY.v1.0.1.htmlstripped.train \\
        --validation_file QuALITY.v1.0.1.htmlstripped.dev --halve_validation --output_dir chooser
    python run_finetune.py --task retrieval --model my-model --dataset_name kmfoda/booksum --output_dir search

``--model`` is a checkpoint, or a baseline: untrained (a new model around --chunk_encoder), avg_sbert (mean of the
chunk vectors), sbert (the first chunk only), tfidf, and for retrieval bm25. Chunk vectors are encoded once for all
epochs and seeds; runs that are given the same ``--cache_dir`` share them.

``--model_type chunkbert`` or ``bert-al`` with an encoder as ``--model`` trains it from text instead, on whole
documents; ``truncated``, ``random`` and ``textrank`` train it on one or two windows of them, to compare with.

``--task ranking`` teaches a model to rank documents for queries, from pairs or MS MARCO's document files:

    python run_finetune.py --task ranking --model my-model --train_file pairs.jsonl --test_file more_pairs.jsonl \\
        --output_dir ranker

``--task summarization`` teaches BERT-AL to pick the sentences of a summary; the paper's recipe on CNN/DailyMail:

    python run_finetune.py --task summarization --model_type bert-al --model google-bert/bert-base-uncased \\
        --recurrence replace --segment_length 256 --dataset_name abisee/cnn_dailymail --dataset_config_name 3.0.0 \\
        --validation_split validation --test_split test --max_steps 50000 --warmup_steps 10000 --weight_decay 0 \\
        --adam_epsilon 1e-9 --gradient_accumulation_steps 2 --eval_strategy steps --eval_steps 1000 \\
        --save_strategy steps --save_steps 1000 --early_stopping_patience 50 --output_dir summarizer

``--model_type cdlm`` teaches a model that reads several documents at once: ``--task document_matching``,
``coreference`` or ``multihop_qa``:

    python run_finetune.py --model_type cdlm --task coreference --model biu-nlp/cdlm --train_file ECB+_LREC2014 \\
        --train_split train --validation_split validation --test_split test --output_dir coreference

Every option of a task: ``--task ranking --help``. Options may stand in a YAML or JSON file: ``run_finetune.py
options.yaml``. A pip install has this script as ``nextlevelbert-finetune``.
"""

from nextlevelbert.tasks import main

if __name__ == "__main__":
    main()
