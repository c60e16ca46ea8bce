"""Processes that train one model together, although they need different numbers of passes."""

import json

import pytest

TRAIN = """
import json, os, sys
from datetime import timedelta
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from transformers import BertConfig
import nextlevelbert as nlb

BERT = BertConfig(
    vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=64, max_position_embeddings=64,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
).to_dict()

def documents(rank, lengths):
    generator = torch.Generator().manual_seed(rank)
    ids = torch.randint(5, 40, (2, lengths[rank]), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

def chunks(rank):
    generator = torch.Generator().manual_seed(rank)
    return {"inputs_embeds": torch.randn(2, [6_000, 8][rank], 32, generator=generator)}

def new(name):
    torch.manual_seed(0)
    if name == "nextlevelbert":
        return nlb.NextLevelBertForSequenceClassification(nlb.NextLevelBertConfig(
            encoder_config=BERT, chunk_encoder_config=BERT, chunk_size=8, max_chunks=32,
            chunk_prefix_ids=(2,), chunk_suffix_ids=(3,), num_labels=2,
        ))
    if name == "chunkbert":
        return nlb.ChunkBertForSequenceClassification(nlb.ChunkBertConfig(
            encoder_config=BERT, chunk_size=8, chunk_batch_size=4, num_averaged_layers=2,
            classifier_dropout=0.0, num_labels=2,
        ))
    return nlb.BertAlForSequenceClassification(nlb.BertAlConfig(
        encoder_config=BERT, segment_length=8, tokens_at_once=32, classifier_dropout=0.0,
        num_labels=2,
    ))

def batch(name, rank):
    labels = torch.tensor([0, 1])
    if name == "nextlevelbert":
        return {**chunks(rank), "labels": labels}
    return {**documents(rank, [90, 5]), "labels": labels}

def gradients(model):
    values = {}
    for name, weight in model.named_parameters():
        gradient = weight.grad
        if gradient is not None and hasattr(gradient, "full_tensor"):
            gradient = gradient.full_tensor()
        if gradient is not None:
            values[name] = gradient
    return values

def sharded(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2,))
    largest = {}
    for name in ("nextlevelbert", "chunkbert", "bert-al"):
        model = new(name).train()
        for layer in model.model.encoder.encoder.layer:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        model(**batch(name, rank)).loss.backward()

        alone = new(name).train()
        losses = [alone(**batch(name, other)).loss for other in range(2)]
        torch.stack(losses).mean().backward()
        expected = gradients(alone)
        found = gradients(model)
        differences = [(found[key] - expected[key]).abs().max().item() for key in expected]
        largest[name] = max(differences)
    return largest

def without_global_tokens(rank):
    steps = {}
    for pattern in ("masked", "none"):
        torch.manual_seed(0)
        config = nlb.CdlmConfig(
            vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=64, attention_window=8, max_position_embeddings=66, pad_token_id=0,
            mask_token_id=4, sep_token_id=3, bos_token_id=2, eos_token_id=3,
            global_attention=pattern,
        )
        model = DistributedDataParallel(nlb.CdlmForMaskedLM(config))
        for step in range(2):
            ids = documents(2 * step + rank, [20] * 4)["input_ids"]
            labels = torch.full_like(ids, -100)
            labels[:, 3] = ids[:, 3]
            if rank == 1:  # process 0 has no [MASK], so that it has no global token
                ids[:, 3] = 4
            model(input_ids=ids, labels=labels).loss.backward()
        steps[pattern] = step + 1
    return steps

def work(rank, folder, function):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", rank=rank, world_size=2, init_method=f"file://{folder}/store",
        timeout=timedelta(seconds=120),
    )
    result = {"sharded": sharded, "without_global_tokens": without_global_tokens}[function](rank)
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(result, file)
    dist.destroy_process_group()

mp.start_processes(work, (sys.argv[1], sys.argv[2]), nprocs=2, start_method="fork")
"""


@pytest.fixture
def train(fresh_process, tmp_path):
    """Runs a function of the script in two processes, and returns the results of both."""

    def run(function):
        fresh_process(TRAIN, tmp_path, function)
        files = sorted(tmp_path.glob("*.json"))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    return run


def test_sharded_encoders_run_as_many_passes_in_every_process(train):
    results = train("sharded")

    assert len(results) == 2
    for differences in results:
        assert set(differences) == {"nextlevelbert", "chunkbert", "bert-al"}
        assert max(differences.values()) < 1e-5


def test_cdlm_trains_by_data_parallelism_without_global_tokens(train):
    results = train("without_global_tokens")

    assert results == [{"masked": 2, "none": 2}] * 2
