"""What the model card of an extractive summariser says, whatever it was trained on."""

from __future__ import annotations

from .train import SummaryRule

ROUGE = ("rouge1", "rouge2", "rougeL")
MEASURES = (
    "F1 of ROUGE with stemming, rougeL on the summary as a whole, and precision, the share of chosen sentences that "
    "are labelled."
)
LIMITS = (
    "Whole sentences are copied, so a pronoun may lose what it refers to.",
    "Information flows forward only: a sentence is scored without knowledge of later segments.",
    "It has learnt what belongs in summaries of one kind of text.",
)


def snippet(name: str, base: str | None, adapter: bool, rule: SummaryRule) -> str:
    """Code that opens the model `name` (or an adapter on `base`) and summarises a document."""
    opened = f'model = BertAlForExtractiveSummarization.from_pretrained("{name}")'
    if adapter:
        base = base or "the checkpoint that it started from"
        opened = f"""from peft import PeftModel

base = BertAlForExtractiveSummarization.from_pretrained("{base}")
model = PeftModel.from_pretrained(base, "{name}").get_base_model()"""
    return f"""from nextlevelbert import BertAlForExtractiveSummarization

{opened}
print(model.summarize("the text of a whole document", {rule.arguments}))"""
