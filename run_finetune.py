"""Fine-tunes a long-document encoder on a task, and compares it with plain baselines.

    python run_finetune.py --task classification --model my-model --train_file train.jsonl
    --test_file test.jsonl \\
        --seeds 0 1 2 3 4 --output_dir classifier

``--help`` lists the tasks, ``--task TASK --help`` their options, which may also stand in a YAML or
JSON file: ``run_finetune.py options.yaml``. An installed package has
this script as ``nextlevelbert finetune``.
"""

from nextlevelbert.finetuning.tasks import main

if __name__ == "__main__":
    main()
