"""An access token of the Hub is in nothing that the package writes, pickles, prints or uploads.

One process passes a token to each argument that takes one, and collects all output.
"""

import re
from pathlib import Path

import pytest

from nextlevelbert.training.arguments import BaseTrainingArguments

from .models.test_loading_arguments import files_below

ROOT = Path(__file__).parents[1]
SECRET = "hf_" + "secret" * 6
TEXT = (
    "The lighthouse keeper wrote every evening. He noted the wind, the height of the sea and the"
    " ships that passed. On the last page there was only a date. "
)

WITH_TOKEN = """
import logging, pickle, runpy, sys, traceback
from pathlib import Path
import torch
import nextlevelbert as nlb
from transformers import AutoConfig, AutoModel, Trainer

root, folder, secret, text = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
logging.basicConfig(level=logging.INFO)
logging.getLogger("nextlevelbert").setLevel(logging.DEBUG)

def record(name, value):
    print(name, repr(value), str(value), vars(value))
    Path(folder, f"{name}.pickle").write_bytes(pickle.dumps(value))

def attempt(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception:
        traceback.print_exc(file=sys.stdout)
    else:
        raise AssertionError(f"{function} was to fail")

# 1. New models of every family, and what is made of them.
encoder = nlb.load_chunk_encoder("user/encoder", token=secret)
record("encoder", encoder)
models = {
    "whole": nlb.NextLevelBertForMaskedVectorModeling.from_chunk_encoder(
        "user/encoder", chunk_size=16, num_hidden_layers=1, token=secret
    ),
    "plain": nlb.NextLevelBertModel.from_chunk_encoder(
        "user/encoder", chunk_size=16, pooling="plain", token=secret
    ),
    "hate": nlb.HateModel.from_chunk_encoder(
        "user/encoder", chunk_size=16, num_hidden_layers=1, token=secret
    ),
    "chunkbert": nlb.ChunkBertModel.from_encoder(
        "user/encoder", num_averaged_layers=2, token=secret
    ),
    "bert-al": nlb.BertAlForExtractiveSummarization.from_encoder("user/encoder", token=secret),
    "cdlm": nlb.CdlmForMaskedLM.from_encoder("user/encoder", max_length=64, token=secret),
}
for name, model in models.items():
    record(name, model)
    record(f"{name}-config", model.config)
    record(f"{name}-tokenizer", model.tokenizer)
    model.save_pretrained(folder / name)
    torch.save(model, folder / f"{name}.pt")
    model.push_to_hub(f"user/{name}", token=secret)
    model.save_pretrained(
        folder / f"{name}-pushed", push_to_hub=True, repo_id=f"user/{name}-again", token=secret
    )

    # 2. Opened again with a token, by its class and by the auto classes.
    opened = type(model).from_pretrained(f"user/{name}", token=secret)
    record(f"{name}-opened", opened)
    record(f"{name}-opened-tokenizer", opened.tokenizer)
    opened.save_pretrained(folder / f"{name}-saved-again")
    record(f"{name}-auto-config", AutoConfig.from_pretrained(f"user/{name}", token=secret))
automatic = AutoModel.from_pretrained("user/whole", token=secret)
record("automatic", automatic)
automatic.save_pretrained(folder / "automatic")
record("of-a-model", nlb.load_chunk_encoder("user/whole", token=secret))

# 3. Corpora.
rule = models["whole"].config.chunking_rule()
record("rows", nlb.ChunkVectors(encoder, rule))
corpus = nlb.encode_corpus([text * 3, text * 4], encoder, rule, folder / "corpus")
corpus.push_to_hub("user/corpus", token=secret)
record("corpus", nlb.VectorCorpus.from_hub("user/corpus", token=secret))

# 4. Errors.
attempt(nlb.load_chunk_encoder, "user/missing", token=secret)
attempt(nlb.load_chunk_encoder, "user/encoder", token=secret, revision="none")
attempt(nlb.load_chunk_encoder, "user/encoder", token=secret, revison="none")
attempt(nlb.NextLevelBertModel.from_chunk_encoder, "user/encoder", token=secret, chunk_sise=8)
attempt(nlb.NextLevelBertModel.from_chunk_encoder, encoder, token=secret)
attempt(nlb.NextLevelBertModel.from_pretrained, "user/missing", token=secret)
attempt(nlb.NextLevelBertModel.from_pretrained, "user/encoder", token=secret)
attempt(nlb.ChunkBertModel.from_encoder, "user/missing", token=secret)
attempt(nlb.CdlmModel.from_encoder, "user/encoder", token=secret, max_lenght=64)
attempt(nlb.VectorCorpus.from_hub, "user/missing", token=secret)

# 5. The two scripts, whose folders are uploaded.
books = folder / "books"
books.mkdir()
for index in range(4):
    (books / f"{index}.txt").write_text(text * 10)
rows = folder / "rows.csv"
rows.write_text("text,label\\n" + "".join(f'"{text * index}",{index % 2}\\n' for index in range(1, 9)))
options = f"--max_steps 1 --chunk_size 16 --push_to_hub --hub_token {secret}"
options += f" --chunk_encoder user/encoder"
for script, words in (
    ("run_pretraining.py", f"--do_train --sequence_length 32 --train_file {books}"),
    (
        "run_finetune.py",
        f"--task classification --model untrained --train_file {rows}"
        f" --validation_file {rows} --test_file {rows}",
    ),
):
    name = script.removesuffix(".py")
    output = f"--output_dir {folder}/{name} --hub_model_id user/{name}"
    sys.argv = [script, *words.split(), *options.split(), *output.split()]
    try:
        runpy.run_path(f"{root}/{script}", run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
print("all done")
"""


@pytest.mark.long
def test_a_token_is_written_nowhere(hub, fresh_process, toy_encoder_path, tmp_path):
    hub.put("user/encoder", files_below(toy_encoder_path))

    output = fresh_process(WITH_TOKEN, ROOT, tmp_path, SECRET, TEXT)

    errors = (fresh_process.folder / "errors").read_text(encoding="utf-8")
    everything = files_below(tmp_path, prefix="written: ")
    everything |= files_below(fresh_process.folder, prefix="process: ")
    for repository in hub.repositories():
        for name, content in hub.files(*repository).items():
            everything[f"uploaded: {repository} {name}"] = content
    names = " ".join(everything)
    assert output.endswith("all done\n")
    assert f"Bearer {SECRET}" in hub.authorizations
    assert len(re.findall(r"written: \S+config\.json", names)) > 12
    assert len(re.findall(r"uploaded: \('model', 'user/\S+ README\.md", names)) >= 14
    assert SECRET not in output
    assert SECRET not in errors
    assert [name for name, content in everything.items() if SECRET.encode() in content] == []


def test_training_arguments_do_not_print_or_hand_on_their_token(tmp_path):
    args = BaseTrainingArguments(output_dir=str(tmp_path), hub_token=SECRET, report_to="none")

    for_trainer = args.without_upload()

    assert args.hub_token == SECRET
    assert SECRET not in f"{args!r} {args} {args.to_json_string()} {args.to_sanitized_dict()}"
    assert SECRET not in str(vars(for_trainer))
