"""The scripts of `examples/cdlm`, which import each other by their plain names."""

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "examples" / "cdlm"))

coreference = import_module("coreference")
ecbplus = import_module("ecbplus")
match_documents = import_module("match_documents")
mention_pairs = import_module("mention_pairs")
pretrain = import_module("pretrain")
questions = import_module("questions")

# A short training of a toy, which always comes out the same.
TRAINING = (
    "--max_length 64 --attention_window 16 --learning_rate 3e-3 --lr_scheduler_type constant"
    " --per_device_train_batch_size 4 --disable_tqdm true --report_to none --save_strategy no"
).split()
