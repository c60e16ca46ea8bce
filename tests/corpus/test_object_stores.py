"""A corpus in a real object store, S3 by moto's server, and on a Hub of the tests.

Each call is a process of its own, as on a cluster. A secret that the processes get by their
environment is in nothing that they write, print or log.
"""

import os
import re

import pytest

from ..toys.corpora import objects, parts

SECRET = "secret" * 6
IN_A_FORK = """
import os

if os.fork() > 0:
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    os._exit(0)
"""
OPEN_STORE = """
import logging, os, pickle, signal, sys, time
from pathlib import Path

os.environ.update(
    AWS_ACCESS_KEY_ID="user", AWS_DEFAULT_REGION="us-east-1", no_proxy="127.0.0.1",
    AWS_ENDPOINT_URL=sys.argv[1], AWS_SECRET_ACCESS_KEY=sys.argv[2], HF_TOKEN=sys.argv[2],
)
logging.basicConfig(level=logging.INFO)
logging.getLogger("nextlevelbert").setLevel(logging.DEBUG)
import huggingface_hub.utils._cache_assets as assets
import nextlevelbert as nlb
import nextlevelbert.corpus.folder as folders
from tests.toys.corpora import DOCUMENTS, SMALL

assets.HF_ASSETS_CACHE = sys.argv[3]
address = sys.argv[4]
source = nlb.load_chunk_encoder(nlb.static_checkpoint())
rule = nlb.ChunkingRule.from_tokenizer(source.tokenizer, 16)
write = folders.CorpusFolder.write

def write_and_print(self, name, content):
    print("writes", name, flush=True)
    write(self, name, content)

folders.CorpusFolder.write = write_and_print

def encode():
    return nlb.encode_corpus(DOCUMENTS, source, rule, address, **SMALL)
"""
KILLED = """
def write_one(self, name, content):
    if name.startswith("part-000001"):
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, name, content)

folders.CorpusFolder.write = write_one
encode()
"""
CREATED = """
from huggingface_hub import create_repo
create_repo("user/address", repo_type="dataset")
"""
READ = """
corpus = encode()
print(corpus)
for document in corpus:
    assert document.plain.equal(corpus[document.id].plain)
print(len(nlb.PackedVectorDataset(corpus, sequence_length=8)[1].inputs_embeds))
Path(sys.argv[3], "corpus.pickle").write_bytes(pickle.dumps(corpus))
"""
IN_A_WORKER = """
from torch.utils.data import DataLoader

corpus = nlb.VectorCorpus(address)
dataset = nlb.PackedVectorDataset(corpus, sequence_length=8)
rows = DataLoader(dataset, batch_size=None, num_workers=2, collate_fn=list)
print(sum(len(row[0]) for row in rows))
"""
PRETRAIN = """
from nextlevelbert.command import main

def pretrain(output):
    os.chdir(sys.argv[3])
    argv = f"--corpus_dir {address} --output_dir {output} --train_file example-books"
    argv += f" --chunk_encoder {nlb.static_checkpoint()} --chunk_size 64 --num_hidden_layers 1"
    argv += " --do_train --use_cpu --disable_tqdm true --sequence_length 16 --max_steps 4"
    argv += " --save_steps 2 --characters_per_part 5000 --dataloader_num_workers 2"
    assert main(["pretrain", *argv.split()]) in (None, 0)
"""
KILLED_IN_TRAINING = """
from transformers import Trainer

step = Trainer.training_step

def step_or_die(self, *arguments, **options):
    if self.state.global_step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, *arguments, **options)

Trainer.training_step = step_or_die
pretrain("model")
"""
MISSING = """
address += "-of-nobody"
nlb.VectorCorpus(address)
"""


@pytest.fixture
def call(s3, fresh_process, tmp_path):
    """Runs a script in a process of its own, and looks for the secret in all that it leaves."""

    def run(script, address, *, before="", **options):
        words = [s3[0], SECRET, tmp_path, address]
        output = fresh_process(before + OPEN_STORE + script, *words, **options)
        log = (fresh_process.folder / "errors").read_text(encoding="utf-8")
        assert SECRET not in output + log
        for path in tmp_path.rglob("*"):
            assert path.is_dir() or SECRET.encode() not in path.read_bytes()
        return output

    return run


@pytest.mark.long
def test_s3_gets_the_bytes_of_a_folder_and_a_kill_costs_one_part(corpus, s3, call):
    _, store = s3
    assert call(KILLED, "s3://bucket/books", before=IN_A_FORK).endswith("-9\n")
    [path] = store.glob("bucket/books/*")
    assert "/part-000000-" in path

    output = call(READ, "s3://bucket/books")
    packed = call(IN_A_WORKER, "s3://bucket/books")

    assert objects(store, "bucket/books") == parts(corpus.path)
    assert re.findall(r"writes (part-\d+|_\w+)", output) == [
        "part-000001",
        "part-000002",
        "_SUCCESS",
    ]
    assert "4 documents, 25 chunks" in output
    assert int(packed.splitlines()[-1]) > 25


@pytest.mark.long
def test_a_damaged_object_is_named_and_written_again(corpus, s3, call):
    _, store = s3
    call(READ, "s3://bucket/damaged")
    store.invalidate_cache()
    path = sorted(store.glob("bucket/damaged/part-*"))[1]
    content = store.cat_file(path)
    store.pipe_file(path, content[: len(content) // 2])

    error = call(READ, "s3://bucket/damaged", fails=True)
    store.rm_file(path)
    output = call(READ, "s3://bucket/damaged")

    assert f"s3://{path} is damaged" in error
    assert re.findall(r"writes (part-\d+)", output) == ["part-000001"]
    assert store.cat_file(path) == content


@pytest.mark.long
def test_a_killed_training_on_s3_resumes_to_the_model_of_a_folder(s3, call, tmp_path):
    call(f"{PRETRAIN}pretrain('straight')", tmp_path / "vectors")

    killed = call(PRETRAIN + KILLED_IN_TRAINING, "s3://bucket/vectors", before=IN_A_FORK)
    output = call(f"{PRETRAIN}pretrain('model')", "s3://bucket/vectors")

    assert killed.endswith("-9\n")
    assert "writes" not in output
    assert {*os.listdir(tmp_path)} == {"model", "nextlevelbert", "straight", "vectors"}
    for name in ("model.safetensors", "settings.json"):
        content = (tmp_path / "model" / name).read_bytes()
        assert content == (tmp_path / "straight" / name).read_bytes()
    assert len(parts(tmp_path / "vectors")) > 3
    assert objects(s3[1], "bucket/vectors") == parts(tmp_path / "vectors")


@pytest.mark.long
def test_what_is_not_there_is_named_without_the_secret(call):
    for address in ("s3://bucket/books", "s3://nobody/books"):
        error = call(MISSING, address, fails=True)

        assert f"There is no corpus in {address}-of-nobody" in error


@pytest.mark.long
def test_a_hub_gets_the_bytes_of_a_folder(corpus, hub, call):
    address = "hf://datasets/user/address"

    assert call(CREATED + KILLED, address, before=IN_A_FORK).endswith("-9\n")
    output = call(READ, address)

    assert hub.files("dataset", "user/address") == parts(corpus.path)
    assert re.findall(r"writes (part-\d+|_\w+)", output) == [
        "part-000001",
        "part-000002",
        "_SUCCESS",
    ]
    assert f"Bearer {SECRET}" in hub.authorizations
