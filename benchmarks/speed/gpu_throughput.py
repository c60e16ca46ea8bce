"""Encoding, pretraining and fine-tuning on one GPU, each beside what nothing can be faster than.

- encoding: from text to vectors, and to a corpus on disk, beside the bare forward pass over ids
  that lie on the device, and beside tokenising alone.
- pretraining: a stock `Trainer` beside a bare loop over one batch that lies on the device, and the
  loss over stored vectors alone beside the step.
- fine-tuning: a step over stored vectors beside the bare backbone on the same padded batch.
- ChunkBERT, BERT-AL and CDLM: a step beside the plain encoder, and beside one fused attention.

Every part has a time limit, and the next part goes on after an error, so that the whole takes four
minutes at most. `--device cpu --tiny` tries the script.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from transformers import AutoModel, BertConfig, BertModel, Trainer, TrainingArguments

from benchmarks.common import measuring
from benchmarks.speed.cdlm_attention import square_plan
from nextlevelbert import (
    BertAlForSequenceClassification,
    CdlmModel,
    ChunkBertForSequenceClassification,
    DataCollatorForVectorMasking,
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
    PackedVectorDataset,
    encode_corpus,
    load_chunk_encoder,
)
from nextlevelbert.models import modeling_cdlm
from nextlevelbert.models.losses import choice_loss
from nextlevelbert.models.tokenizing import tokenize_document
from nextlevelbert.models.windows import pad_vectors

Run = Callable[[], Any]


@dataclass
class Bench:
    """Sizes of a run, its device, and the rows of its table.

    Attributes:
        encoder: folder or name of the chunk encoder.
        texts: documents to encode.
        device: device to measure.
        tiny: true to try the script.
        rows: what was measured, its rate and the unit, and the share of its reference.
    """

    encoder: str
    texts: list[str]
    device: torch.device
    tiny: bool
    rows: list[list[str]] = field(default_factory=list)

    def size(self, usual: int, tiny: int) -> int:
        """Returns the size of something, which is small in a try."""
        if self.tiny:
            return tiny
        return usual

    @property
    def dtypes(self) -> list[torch.dtype]:
        """Returns the dtypes to measure; few CPUs have instructions for bfloat16."""
        if self.device.type == "cpu":
            return [torch.float32]
        return [torch.float32, torch.bfloat16]

    def add(self, what: str, rate: float, unit: str, reference: float | None = None) -> None:
        """Adds a row, and prints it at once."""
        share = ""
        if reference:
            share = f"{rate / reference:.0%}"
        row = [what, f"{rate:,.4g} {unit}", share]
        self.rows.append(row)
        print(*row, flush=True)

    def seconds(self, run: Run, rounds: int = 3) -> float:
        """Measures the median seconds of a run until the device is done, after one run."""
        run()
        seconds = []
        for _ in range(rounds):
            self.wait()
            start = time.perf_counter()
            run()
            self.wait()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    def wait(self) -> None:
        """Waits until the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def waits(self, run: Run) -> str:
        """Counts how often a run waits for the device."""
        if self.device.type != "cuda":
            return "not counted"
        torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run()
        torch.cuda.set_sync_debug_mode("default")
        return str(sum("synchroniz" in str(warning.message) for warning in caught))


def training_step(bench: Bench, model: torch.nn.Module, loss: Run) -> Run:
    """Returns a step with forward, backward and AdamW."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    is_cuda = bench.device.type == "cuda"
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=is_cuda)

    def step() -> None:
        with torch.autocast(bench.device.type, torch.bfloat16, enabled=is_cuda):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def loss_of(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns the loss of a batch."""
    return model(**batch).loss


def measure_encoding(bench: Bench) -> None:
    source = load_chunk_encoder(bench.encoder)
    model: Any = NextLevelBertModel.from_chunk_encoder(source, chunk_size=256).to(bench.device)
    rule = model.config.chunking_rule()
    tokens = sum(len(tokenize_document(model.tokenizer, text)) for text in bench.texts)
    marked = [f"{text} [SEP]" for text in bench.texts]
    tokenising = tokens / bench.seconds(lambda: model.plan(bench.texts))
    bench.add("tokenising and splitting alone", tokenising, "tokens/s")

    ids = torch.randint(1_000, 20_000, (bench.size(256, 4), 256), device=bench.device)
    for dtype in bench.dtypes:
        model.chunk_encoder.to(dtype)
        network = model.chunk_encoder.model
        with torch.inference_mode():
            bare = ids.numel() / bench.seconds(partial(network, input_ids=ids), 10)
        bench.add(f"bare forward pass, {dtype}", bare, "tokens/s")
        slower = min(bare, tokenising)
        rate = tokens / bench.seconds(lambda: model.encode(bench.texts))
        bench.add(f"encode from text, {dtype}", rate, "tokens/s", slower)
        rate = tokens / bench.seconds(lambda: model.encode(marked))
        bench.add(f"encode, each text with [SEP], {dtype}", rate, "tokens/s", slower)

    source.encoder.to(bench.device, dtype)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        encode_corpus(bench.texts, source, rule, folder, progress=False)
        rate = tokens / (time.perf_counter() - start)
    bench.add(f"encode_corpus from text to disk, {dtype}", rate, "tokens/s", slower)


def measure_pretraining(bench: Bench) -> None:
    length = bench.size(512, 32)
    model: Any = NextLevelBertForMaskedVectorModeling.from_chunk_encoder(
        bench.encoder,
        include_chunk_encoder=False,
        loss="cross_entropy",
        num_candidates=bench.size(8_192, 64),
    )
    size = model.config.hidden_size
    model.candidates = torch.randn(model.config.num_candidates, size)
    model.to(bench.device).train()
    with measuring.random_corpus(size) as corpus:
        dataset = PackedVectorDataset(corpus, length)
        for rows in (bench.size(4, 2), bench.size(64, 4)):
            batch = DataCollatorForVectorMasking()([dataset[row] for row in range(rows)])
            batch = {name: values.to(bench.device) for name, values in batch.items()}
            step = training_step(bench, model, partial(loss_of, model, batch))
            seconds = bench.seconds(step, 5)
            bare = rows * length / seconds
            bench.add(f"pretraining step, batch of {rows}", bare, "positions/s")
            print(f"waits in a step: {bench.waits(step)}")
            measure_loss(bench, model, batch, seconds)

            steps = bench.size(40, 2)
            args = TrainingArguments(
                tempfile.mkdtemp(),
                max_steps=steps,
                per_device_train_batch_size=rows,
                bf16=bench.device.type == "cuda",
                use_cpu=bench.device.type == "cpu",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                remove_unused_columns=False,
            )
            trainer = Trainer(model, args, DataCollatorForVectorMasking(), train_dataset=dataset)
            start = time.perf_counter()
            trainer.train()
            rate = steps * rows * length / (time.perf_counter() - start)
            bench.add(f"Trainer, batch of {rows}", rate, "positions/s", bare)


def measure_loss(bench: Bench, model: Any, batch: dict[str, torch.Tensor], seconds: float) -> None:
    """Measures the loss over stored vectors alone, with its backward pass.

    Args:
        bench: the run.
        model: model with stored vectors to choose among.
        batch: batch of the step.
        seconds: seconds of the whole step.
    """
    masked = int(batch["mask_positions"].sum())
    targets = torch.randn(masked, model.config.hidden_size, device=bench.device)
    predictions = torch.randn_like(targets, requires_grad=True)

    def loss() -> None:
        choice_loss(predictions, targets, candidates=model.candidates).backward()

    rate = 1 / bench.seconds(loss)
    bench.add(f"loss alone, {masked:,} predictions", rate, "losses/s")
    print(f"share of the step: {1 / (rate * seconds):.0%}")


def measure_finetuning(bench: Bench) -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(100, 500, (16,), generator=generator).tolist()[: bench.size(16, 2)]
    model: Any = NextLevelBertForSequenceClassification.from_chunk_encoder(
        bench.encoder, num_labels=2
    )
    model.to(bench.device).train()
    size = model.config.chunk_hidden_size
    batch = pad_vectors([torch.randn(count, size) for count in counts])
    batch = {name: values.to(bench.device) for name, values in batch.items()}
    labels = (torch.arange(len(counts)) % 2).to(bench.device)
    fields = {"attention_probs_dropout_prob": 0.0, "vocab_size": 2}
    config = BertConfig(**{**model.config.encoder_config.to_dict(), **fields})
    bare = BertModel(config, add_pooling_layer=False).to(bench.device).train()

    def bare_loss() -> torch.Tensor:
        return bare(**batch).last_hidden_state[:, 0].float().square().mean()

    reference = sum(counts) / bench.seconds(training_step(bench, bare, bare_loss))
    bench.add("bare backbone on the padded batch", reference, "chunks/s")
    step = training_step(bench, model, lambda: model(**batch, labels=labels).loss)
    bench.add(
        "fine-tuning on stored vectors", sum(counts) / bench.seconds(step), "chunks/s", reference
    )
    print(f"waits in a step: {bench.waits(step)}")


def measure_documents(bench: Bench) -> None:
    length = bench.size(4_096, 256)
    ids = torch.randint(1_000, 20_000, (1, length), device=bench.device)
    chunkbert: Any = ChunkBertForSequenceClassification.from_encoder(
        bench.encoder,
        num_labels=2,
        max_training_tokens=None,
        chunk_size=128,
        num_averaged_layers=bench.size(5, 2),
    )
    chunkbert.to(bench.device).train()
    labels = torch.ones(1, dtype=torch.long, device=bench.device)
    plain = AutoModel.from_pretrained(bench.encoder).to(bench.device).train()
    pieces = ids.view(-1, 128)

    def plain_loss() -> torch.Tensor:
        return plain(input_ids=pieces).last_hidden_state.float().square().mean()

    reference = length / bench.seconds(training_step(bench, plain, plain_loss))
    bench.add("plain encoder, training step", reference, "tokens/s")
    step = training_step(bench, chunkbert, lambda: chunkbert(ids, labels=labels).loss)
    bench.add("ChunkBERT, training step", length / bench.seconds(step), "tokens/s", reference)
    print(f"waits in a step: {bench.waits(step)}")

    bert_al: Any = BertAlForSequenceClassification.from_encoder(bench.encoder, num_labels=2)
    bert_al.to(bench.device).train()
    step = training_step(bench, bert_al, lambda: bert_al(ids, labels=labels).loss)
    bench.add("BERT-AL, training step", length / bench.seconds(step), "tokens/s", reference)
    print(f"waits in a step: {bench.waits(step)}")

    cdlm: Any = CdlmModel.from_encoder(
        bench.encoder, max_length=length, attention_window=bench.size(512, 64)
    )
    cdlm.to(bench.device).eval()
    marks = (torch.rand(1, length, device=bench.device) < 0.02).long()
    usual_plan = modeling_cdlm.plan_attention
    rates = {}
    for way, plan in {"usual": usual_plan, "one fused attention": square_plan}.items():
        modeling_cdlm.plan_attention = plan
        is_cuda = bench.device.type == "cuda"
        with torch.no_grad(), torch.autocast(bench.device.type, torch.bfloat16, enabled=is_cuda):
            seconds = bench.seconds(lambda: cdlm(ids, global_attention_mask=marks))
        rates[way] = length / seconds
        bench.add(f"CDLM, forward pass, {way}", rates[way], "tokens/s", rates["usual"])
    modeling_cdlm.plan_attention = usual_plan


# The most important first.
PARTS = (measure_encoding, measure_pretraining, measure_finetuning, measure_documents)


def main() -> None:
    parser = measuring.parser_with_text(__doc__, tokens=200_000)
    parser.add_argument("--device", default="cuda", help='"cpu" only to try the script')
    parser.add_argument("--tiny", action="store_true", help="try the script on little data")
    parser.add_argument("--documents", type=int, default=15, help="number of texts to encode")
    parser.add_argument("--minutes", type=float, default=4, help="no part begins after this time")
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("No CUDA device here. Try the script with --device cpu --tiny.")
    name = "CPU"
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    characters = args.tokens * measuring.CHARACTERS_PER_TOKEN
    documents = args.documents
    if args.tiny:
        characters = 2_000
        documents = 2
    text = measuring.long_text(characters, args.file)
    bench = Bench(args.encoder, [text] * documents, device, tiny=args.tiny)
    measuring.print_header("float32 and bfloat16", name)

    start = time.monotonic()
    for part in PARTS:
        if time.monotonic() - start > 60 * args.minutes:
            print(f"No time left for {part.__name__}.")
            continue
        try:
            part(bench)
        except Exception as error:  # the other parts still have something to say
            print(f"{part.__name__} failed: {type(error).__name__}: {error}", flush=True)
    measuring.print_table(["what", "rate", "of its reference"], bench.rows)


if __name__ == "__main__":
    main()
