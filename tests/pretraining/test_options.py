"""Defaults of pretraining, against the paper."""

from nextlevelbert import DataCollatorForVectorMasking, DocumentVectorDataset, PackedVectorDataset
from nextlevelbert.pretraining.options import MaskingArguments


def test_masks_and_sequences_are_by_default_the_papers(stories):
    options = MaskingArguments()
    collator = DataCollatorForVectorMasking()

    assert vars(options) == {"sequence_length": 512, "masking_probability": 0.15}
    assert vars(collator) == {"probability": 0.15, "mask_share": 0.8, "random_share": 0.1}

    for kind in (PackedVectorDataset, DocumentVectorDataset):
        assert kind(stories).sequence_length == 512
