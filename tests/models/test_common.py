"""What every family and head promises: one table of models, and one test a promise."""

import copy
import inspect
import json
import pickle

import pytest
import torch
import transformers
from accelerate import disk_offload
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

import nextlevelbert as nlb

from ..toys.vectors import TINY, close

TEXTS = ["the whale and the sea " * 12, "one short text", "it was the best of times. " * 7]
VOCABULARY = 30_522

# name → (class, the auto class that opens it). Coreference has none in transformers.
HEADS = {
    "nextlevelbert": (nlb.NextLevelBertModel, "AutoModel"),
    "nextlevelbert-masked": (nlb.NextLevelBertForMaskedVectorModeling, "AutoModelForPreTraining"),
    "nextlevelbert-contrastive": (nlb.NextLevelBertForContrastiveLearning, None),
    "nextlevelbert-classification": (
        nlb.NextLevelBertForSequenceClassification,
        "AutoModelForSequenceClassification",
    ),
    "nextlevelbert-choice": (nlb.NextLevelBertForMultipleChoice, "AutoModelForMultipleChoice"),
    "hate": (nlb.HateModel, "AutoModel"),
    "hate-masked": (nlb.HateForMaskedSentencePrediction, "AutoModelForPreTraining"),
    "hate-classification": (
        nlb.HateForSequenceClassification,
        "AutoModelForSequenceClassification",
    ),
    "chunkbert": (nlb.ChunkBertModel, "AutoModel"),
    "chunkbert-classification": (
        nlb.ChunkBertForSequenceClassification,
        "AutoModelForSequenceClassification",
    ),
    "bert-al": (nlb.BertAlModel, "AutoModel"),
    "bert-al-classification": (
        nlb.BertAlForSequenceClassification,
        "AutoModelForSequenceClassification",
    ),
    "bert-al-summarization": (nlb.BertAlForExtractiveSummarization, None),
    "cdlm": (nlb.CdlmModel, "AutoModel"),
    "cdlm-masked": (nlb.CdlmForMaskedLM, "AutoModelForMaskedLM"),
    "cdlm-matching": (nlb.CdlmForDocumentMatching, "AutoModelForSequenceClassification"),
    "cdlm-coreference": (nlb.CdlmForCrossDocumentCoreference, None),
    "cdlm-questions": (nlb.CdlmForMultiHopQuestionAnswering, "AutoModelForQuestionAnswering"),
}
FAMILIES = ("nextlevelbert", "hate", "chunkbert", "bert-al", "cdlm")
OVER_VECTORS = [name for name in HEADS if name.startswith(("nextlevelbert", "hate"))]
PIECEWISE = [name for name in HEADS if name.startswith(("chunkbert", "bert-al"))]
PACKED = ("nextlevelbert-masked", "nextlevelbert-contrastive", "hate-masked")
TRAINED = [name for name in HEADS if "-" in name.removeprefix("bert-al")]  # heads: they have a loss
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


# Sizes of small models, by family.
SMALL = {
    "nextlevelbert": {"chunk_size": 12},
    "hate": {"num_hidden_layers": 2},
    "chunkbert": {"chunk_size": 24, "num_averaged_layers": 2},
    "bert-al": {"segment_length": 24},
    "cdlm": {"vocab_size": VOCABULARY, "max_position_embeddings": 130, "attention_window": 8},
}


@pytest.fixture(scope="module")
def models(toy_encoder_path, encoder, small_tokenizer):
    """A model of every row, with weights that make each of its parts matter, without dropout."""
    made = {}
    chunk_encoder = nlb.load_chunk_encoder(toy_encoder_path)
    for name, (kind, _) in HEADS.items():
        torch.manual_seed(5)
        [family] = [family for family in FAMILIES if name.startswith(family)]
        fields = dict(SMALL[family])
        if name.endswith("classification"):
            fields["num_labels"] = 3
        if family == "cdlm":
            model = kind(
                nlb.CdlmConfig(**TINY, **QUIET, **fields, pad_token_id=0, mask_token_id=103)
            )
            model.tokenizer = small_tokenizer
        elif name in OVER_VECTORS:
            model = kind.from_chunk_encoder(chunk_encoder, **fields)
        else:
            model = kind.from_encoder(encoder, **fields)
        torch.manual_seed(6)
        for parameter_name, weight in model.named_parameters():
            if "chunk_encoder" not in parameter_name:
                noise = 0.2 * torch.randn_like(weight)
                if "special" in parameter_name:
                    noise *= weight.data.ne(0)  # the vector of [PAD] stays zero
                weight.data += noise
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        made[name] = model.eval()
    return made


def tokens(model, texts, **options):
    batch = model.tokenizer(texts, padding=True, return_tensors="pt", **options)
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


def vectors(model, *shape):
    size = (*shape, model.config.chunk_hidden_size)
    return torch.nn.functional.normalize(
        torch.randn(size, generator=torch.Generator().manual_seed(1)), dim=-1
    )


def inputs_of(name, model):
    """A batch for the head, with labels where it has a loss."""
    if name == "nextlevelbert-contrastive":
        special_ids = torch.full((3, 2, 5), -1)
        special_ids[..., 0] = 1
        special_ids[..., -1] = 2
        rows = vectors(model, 3, 2, 5)
        return {"inputs_embeds": rows, "special_ids": special_ids, "document_ids": torch.arange(3)}
    if name in PACKED:
        special_ids = torch.full((2, 7), -1)
        special_ids[:, 0] = 1
        special_ids[:, 3] = 3
        special_ids[0, 5] = 3
        rows = vectors(model, 2, 7)
        batch = {"inputs_embeds": rows, "special_ids": special_ids}
        return batch | {"labels": rows, "mask_positions": special_ids == 3}
    batch = tokens(model, TEXTS)
    if name == "nextlevelbert-choice":
        pairs = tokens(model, ["the whale?", "a train leaves?"] * 3)
        batch |= {f"pair_{key}": v.view(3, 2, -1) for key, v in pairs.items()}
        return batch | {"labels": torch.tensor([0, 1, 1])}
    if name.endswith(("classification", "matching")):
        return batch | {"labels": torch.tensor([0, 1, 1])}
    if name == "bert-al-summarization":
        story = " [SEP] [CLS] ".join(["the whale swims"] * 12)  # sentences beyond the first segment
        labels = torch.full((3, 12), -100)
        labels[:, 0] = 1
        labels[0] = torch.arange(12) % 2
        return tokens(model, [story, *TEXTS[1:]]) | {"labels": labels}
    if name == "cdlm-masked":
        labels = torch.full_like(batch["input_ids"], -100)
        labels[:, 2] = batch["input_ids"][:, 2]
        return batch | {"labels": labels}
    if name == "cdlm-coreference":
        spans = torch.tensor([[[1, 2], [2, 3]]] * 3)
        pairs = torch.tensor([[[0, 1]]] * 3)
        return batch | {"mention_spans": spans, "mention_pairs": pairs, "labels": torch.ones(3, 1)}
    if name == "cdlm-questions":
        wide = torch.zeros_like(batch["input_ids"])
        wide[:, :4] = 1
        ones = torch.ones(3, 1, dtype=torch.long)
        return batch | {
            "global_attention_mask": wide,
            "context_mask": wide,
            "sentence_index": 2 * ones,
            "paragraph_index": ones,
            "start_positions": ones,
            "end_positions": 2 * ones,
            "type_labels": torch.arange(3),
            "sentence_labels": ones,
            "paragraph_labels": ones,
        }
    return batch


def outputs_of(name, model):
    """Every float tensor that the head gives for its batch."""
    tensors = {}
    for key, value in model(**inputs_of(name, model)).items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            tensors[key] = value.detach().clone()
    return tensors


def copied(model):
    """A deep copy that shares the tokenizer, which takes the longest."""
    return copy.deepcopy(model, memo={id(model.tokenizer): model.tokenizer})


def agree(one, other, **tolerance):
    assert one.keys() == other.keys()
    for key, values in one.items():
        torch.testing.assert_close(
            values, other[key], equal_nan=True, **(tolerance or {"atol": 1e-6, "rtol": 1e-5})
        )


@pytest.fixture(scope="module")
def saved(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for name, model in models.items():
        model.save_pretrained(folder / name)
        save_file(outputs_of(name, model), folder / name / "expected.safetensors")
    return folder


@pytest.mark.parametrize("name", HEADS)
def test_saved_and_opened_it_is_the_same(models, saved, name):
    kind, auto = HEADS[name]
    model, report = kind.from_pretrained(saved / name, output_loading_info=True)

    assert not report["missing_keys"]
    assert not report["unexpected_keys"]

    agree(outputs_of(name, model.eval()), outputs_of(name, models[name]))
    tied = set(models[name].all_tied_weights_keys)  # stored once

    assert (
        load_file(saved / name / "model.safetensors").keys()
        == models[name].state_dict().keys() - tied
    )

    card = (saved / name / "README.md").read_text(encoding="utf-8")

    assert f"is a `{kind.__name__}` and reads whole documents" in card
    assert f"\nmodel = {kind.__name__}.from_pretrained(" in card

    if auto is not None:
        assert type(getattr(transformers, auto).from_pretrained(saved / name)) is kind
        assert f"\nmodel = {auto}.from_pretrained(" in card


@pytest.mark.parametrize("name", HEADS)
def test_what_is_published_holds_no_path_and_no_pickle(saved, toy_encoder_path, encoder, name):
    for path in (saved / name).rglob("*"):
        assert path.suffix not in (".bin", ".pt", ".pth", ".pkl")
        for folder in (toy_encoder_path, encoder, saved):
            assert not path.is_file() or str(folder).encode() not in path.read_bytes(), path


# A user who has transformers, and not this package. Its code is loaded once a family.
ELSEWHERE = """
import json, sys
from pathlib import Path
import torch, transformers
from safetensors.torch import load_file
from transformers.dynamic_module_utils import get_class_from_dynamic_module

saved = Path(sys.argv[1])
for name, (heads, family) in json.loads(sys.argv[2]).items():
    folder = saved / name
    names = json.loads((folder / "config.json").read_text())["auto_map"]
    module = names["AutoModel"].split(".")[0]
    if heads not in [path.split(".")[1] for path in names.values()]:
        names["this head"] = f"{module}.{heads}"
    [reference] = {path for path in names.values() if path.endswith("." + heads)}
    kind = get_class_from_dynamic_module(reference, str(saved / family))
    model = kind.from_pretrained(folder)
    state = model.state_dict()
    for key, values in load_file(folder / "model.safetensors").items():
        assert torch.equal(state[key], values), (name, key)

    if name == family:
        model = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
        batch = model.tokenizer(json.loads(sys.argv[3]), padding=True, return_tensors="pt")
        output = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        expected = load_file(folder / "expected.safetensors")["last_hidden_state"]
        torch.testing.assert_close(output.last_hidden_state, expected, atol=1e-5, rtol=1e-5)
        model.save_pretrained(folder / "again")
        assert (folder / "again" / f"{module}.py").exists(), "its code is carried on"
assert not [name for name in sys.modules if name.split(".")[0] == "nextlevelbert"]
"""


def code_of(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.py")}


def test_each_opens_by_its_code_where_the_package_is_missing(saved, fresh_process):
    heads = {}
    for name, (kind, _) in HEADS.items():
        family = next(family for family in FAMILIES if name.startswith(family))
        assert code_of(saved / name) == code_of(saved / family)
        heads[name] = (kind.__name__, family)
    fresh_process(ELSEWHERE, saved, json.dumps(heads), json.dumps(TEXTS), hidden=True)


def test_no_code_runs_unasked(saved, fresh_process):
    """Without `trust_remote_code`, and without the package, a checkpoint is refused."""
    script = "import sys, transformers\ntransformers.AutoModel.from_pretrained(sys.argv[1])"

    assert "trust_remote_code" in fresh_process(
        script, saved / "nextlevelbert", hidden=True, fails=True
    )


@pytest.mark.parametrize("name", [name for name in HEADS if name not in PACKED])
def test_a_row_does_not_depend_on_its_neighbours(models, name):
    """The same for a text alone and for one padded to the longest of a batch."""
    batch = inputs_of(name, models[name])
    real = int(batch["attention_mask"][1].sum())
    length = batch["input_ids"].shape[1]
    alone = {}
    for key in list(batch):
        if "label" in key or "_positions" in key:
            del batch[key]
        elif batch[key].shape[1:] == (length,):
            alone[key] = batch[key][1:2, :real]
        else:
            alone[key] = batch[key][1:2]
    together = models[name](**batch)
    for key, values in models[name](**alone).items():
        other = together[key][1:2]
        if other.shape != values.shape:  # one position a token or chunk
            other = other[:, : values.shape[1]]
        close(values, other)


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_reach_all_but_the_frozen(models, name):
    model = copied(models[name]).train()
    model(**inputs_of(name, model)).loss.backward()
    # Not part of this loss: the masked head beside pairs of segments; special vectors and poolers
    # that a batch lacks; local attention in a last layer of which only global tokens are read.
    spared = (
        "head. special_embeddings pooler _global position_embeddings token_type norm_before".split()
    )
    if name.startswith("cdlm"):
        spared.append("layer.1.attention.self")
    if name.endswith(("choice", "questions")):
        # The same for all candidates or positions, so that their softmax leaves only rounding.
        spared += ["classifier.2.bias", "qa_outputs.bias"]
    for key, weight in model.named_parameters():
        assert weight.requires_grad == ("chunk_encoder." not in key), key
        if weight.requires_grad and not any(part in key for part in spared):
            assert weight.grad is not None, key
            assert weight.grad.any(), key


@pytest.mark.parametrize("name", [name for name in TRAINED if name != "cdlm-questions"])
def test_checkpointing_changes_no_gradient(models, name):
    one = copied(models[name]).train()
    other = copied(models[name]).train()
    other.gradient_checkpointing_enable({"use_reentrant": False})
    for model in (one, other):
        model(**inputs_of(name, model)).loss.backward()
    for weight, same in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(weight.grad, same.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_half_precision(models, name):
    """bfloat16 gives finite numbers near those of float32."""
    outputs = outputs_of(name, copied(models[name]).to(torch.bfloat16))
    for key, values in outputs_of(name, models[name]).items():
        real = values.isfinite()
        assert torch.equal(outputs[key].isfinite(), real), key
        torch.testing.assert_close(outputs[key][real].float(), values[real], atol=0.25, rtol=0.1)


@pytest.mark.parametrize(
    "name",
    [
        "nextlevelbert-classification",
        "hate-classification",
        "chunkbert-classification",
        "bert-al-classification",
        "nextlevelbert-choice",
        "cdlm-masked",
    ],
)
def test_a_row_labelled_minus_100_does_not_count(models, name):
    batch = inputs_of(name, models[name])
    labels = batch["labels"].clone()
    labels[2] = -100
    loss = models[name](**{**batch, "labels": labels}).loss
    logits = models[name](**batch).logits

    assert models[name](**{**batch, "labels": torch.full_like(labels, -100)}).loss == 0

    rows = logits[:2].reshape(-1, logits.shape[-1])
    close(loss, torch.nn.functional.cross_entropy(rows, batch["labels"][:2].reshape(-1)))


@pytest.mark.parametrize("name", [name for name in HEADS if name != "nextlevelbert-contrastive"])
def test_pickled_or_copied_after_a_pass_it_is_the_same(models, name):
    """transformers leaves hooks in an encoder that was asked for hidden states."""
    model = copied(models[name])
    with_states = {"output_hidden_states": name not in PIECEWISE}
    before = model(**inputs_of(name, model), **with_states)
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        agree(outputs_of(name, again), outputs_of(name, model))
        assert again.config is again.base_model.config
        assert again.state_dict().keys() == model.state_dict().keys()
        after = again(**inputs_of(name, again), **with_states)
        assert after.keys() == before.keys()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_misspelt_argument_and_a_text_without_a_batch_are_errors(models, name):
    ids = torch.tensor([101, 102])
    with pytest.raises(TypeError, match="attentoin_mask"):
        models[name](ids[None], attentoin_mask=1)
    with pytest.raises(ValueError, match=r"Give input_ids \[B, T\]"):
        models[name](ids)


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_may_stay_on_disk(models, saved, tmp_path, name):
    model = HEADS[name][0].from_pretrained(saved / name).eval()
    disk_offload(model, tmp_path)
    agree(outputs_of(name, model), outputs_of(name, models[name]))


def test_a_trace_over_texts_is_refused(models):
    with pytest.raises(ValueError, match="pass over chunk vectors"):
        torch.jit.trace(models["hate"], torch.tensor([[101, 102]]))


@pytest.mark.parametrize("asked", ["output_hidden_states", "output_attentions"])
@pytest.mark.parametrize("name", PIECEWISE)
def test_a_model_that_reads_piece_by_piece_has_no_outputs_of_layers(models, saved, name, asked):
    opened = HEADS[name][0].from_pretrained(saved / name, **{asked: True})
    with pytest.raises(ValueError, match=f"has no {asked}"):
        opened(**inputs_of(name, opened))
    with pytest.raises(ValueError, match=f"has no {asked}"):
        models[name](**inputs_of(name, opened), **{asked: True})


@pytest.mark.parametrize("name", [name for name in HEADS if name not in PIECEWISE])
def test_hidden_states_of_a_list_of_layers(models, name):
    inputs = inputs_of(name, models[name])

    states = models[name](**inputs, output_hidden_states=True).hidden_states
    chosen = models[name](**inputs, output_hidden_states=[0, -1]).hidden_states

    assert len(states) == 3
    close(chosen[0], states[0])
    assert chosen[1] is None
    close(chosen[2], states[2])


@pytest.mark.parametrize("name", HEADS)
def test_arguments_that_transformers_passes_to_any_model(models, name):
    model = models[name]
    inputs = inputs_of(name, model)

    output = model(**inputs, num_items_in_batch=torch.tensor(3), position_ids=None)

    agree(output, model(**inputs))
    with pytest.raises(TypeError, match="position_ids"):
        model(**inputs, position_ids=torch.zeros(1, 2, dtype=torch.long))


@pytest.mark.parametrize(
    "name", [name for name in HEADS if name not in PACKED and not name.startswith("cdlm")]
)
def test_token_types_are_the_third_argument_as_in_bert(name):
    arguments = list(inspect.signature(HEADS[name][0].forward).parameters)

    assert arguments[1:4] == ["input_ids", "attention_mask", "token_type_ids"]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_graph_of_the_pass_over_ids_is_refused(models, name):
    ids = torch.full((2, 20), 1_000)

    with pytest.raises(ValueError, match="pass over chunk vectors"):
        torch.export.export(models[name], (ids,))


@pytest.mark.parametrize("name", HEADS)
def test_every_class_of_a_family_opens_what_another_saved(saved, models, name):
    """Weights of another head are left out, and nothing is said of them."""
    [family] = [family for family in FAMILIES if name.startswith(family)]

    for other, (kind, _) in HEADS.items():
        if other.startswith(family):
            _, report = kind.from_pretrained(
                saved / name, output_loading_info=True, ignore_mismatched_sizes=True
            )
            assert not report["unexpected_keys"], other


def test_what_pretraining_saved_opens_without_a_report(models, tmp_path):
    config = copy.deepcopy(models["nextlevelbert-masked"].config)
    config.loss = "cross_entropy"
    config.num_candidates = 4
    nlb.NextLevelBertForMaskedVectorModeling(config).save_pretrained(tmp_path)

    for kind in (nlb.NextLevelBertModel, nlb.NextLevelBertForSequenceClassification):
        _, report = kind.from_pretrained(tmp_path, output_loading_info=True)
        assert not report["unexpected_keys"]


@pytest.mark.parametrize("name", HEADS)
def test_tuples_instead_of_outputs_by_name(saved, name):
    kind, _ = HEADS[name]
    model = kind.from_pretrained(saved / name, return_dict=False).eval()
    by_name = model(**inputs_of(name, model), return_dict=True)
    outputs = model(**inputs_of(name, model))

    assert isinstance(outputs, tuple)

    for one, other in zip(outputs, by_name.to_tuple(), strict=True):
        close(one, other)


def test_what_is_trained_whole_beside_an_adapter(models):
    """What starts at random has no weights that low-rank matrices could be added to."""
    for name, modules in {
        "nextlevelbert": "",
        "nextlevelbert-choice": "classifier",
        "hate-masked": "head",
        "chunkbert-classification": "classifier",
        "bert-al-summarization": "classifier lstm residual",
        "cdlm-coreference": "scorer",
        "cdlm-questions": "qa_outputs qa_type qa_sentence qa_paragraph",
    }.items():
        assert models[name].modules_to_train_whole() == modules.split()
    model = copied(models["nextlevelbert-choice"])
    adapted = get_peft_model(model, LoraConfig(r=2, **model.lora_targets()))
    for name, weight in adapted.named_parameters():
        is_trained = "lora" in name or "modules_to_save" in name
        assert weight.requires_grad == is_trained, name
        assert "chunk_encoder" not in name or not is_trained


def test_a_model_without_layers_has_no_place_for_adapters(toy_encoder_path):
    model = nlb.NextLevelBertModel.from_chunk_encoder(toy_encoder_path, num_hidden_layers=0)

    with pytest.raises(ValueError, match=r"nothing to adapt\. Train its head alone"):
        model.lora_targets()


@pytest.mark.parametrize("name", FAMILIES)
def test_the_configuration_has_sizes_where_generic_tools_look_for_them(models, name):
    config = models[name].config
    encoder_config = getattr(config, "encoder_config", config)

    for size in ("hidden_size", "num_hidden_layers", "num_attention_heads"):
        assert getattr(config, size) == getattr(encoder_config, size)
    assert config.vocab_size == VOCABULARY


@pytest.mark.parametrize("name", HEADS)
def test_a_model_knows_the_layers_that_belong_on_one_device(models, name):
    """accelerate reads them of the model that it spreads over devices."""
    within = set()
    for module in models[name].modules():
        if isinstance(module, transformers.PreTrainedModel):
            within |= set(module._no_split_modules)

    assert within
    assert models[name]._no_split_modules == within


@pytest.mark.parametrize("name", PIECEWISE)
def test_another_table_of_token_vectors_can_be_set(models, name):
    model = copied(models[name])
    table = torch.nn.Embedding(VOCABULARY, TINY["hidden_size"])

    model.set_input_embeddings(table)

    assert model.get_input_embeddings() is table
    assert model.base_model.encoder.get_input_embeddings() is table


def test_every_public_model_is_in_the_table():
    in_table = {kind for kind, _ in HEADS.values()}
    for name in nlb.__all__:
        public = getattr(nlb, name)
        if isinstance(public, type) and issubclass(public, transformers.PreTrainedModel):
            in_table.remove(public)

    assert in_table == set()
