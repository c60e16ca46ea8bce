"""The scripts of `examples/cdlm`, and a short training."""

from pathlib import Path

from ..scripts import load_script

ROOT = Path(__file__).parents[3]

coreference = load_script("cdlm/coreference.py")
ecbplus = load_script("cdlm/ecbplus.py")
match_documents = load_script("cdlm/match_documents.py")
mention_pairs = load_script("cdlm/mention_pairs.py")
pretrain = load_script("cdlm/pretrain.py")
questions = load_script("cdlm/questions.py")

# A short training of a toy, which always comes out the same.
TRAINING = (
    "--max_length 64 --attention_window 16 --learning_rate 3e-3 --lr_scheduler_type constant"
    " --per_device_train_batch_size 4 --disable_tqdm true --report_to none --save_strategy no"
).split()
