"""What the tasks do alike: reading the sets."""

import pytest

from nextlevelbert.finetuning import classification, multiple_choice, run


@pytest.mark.parametrize("module", [classification, multiple_choice])
def test_the_configuration_of_a_dataset_is_read(module, toy_checkpoint, monkeypatch, tmp_path):
    monkeypatch.setattr(
        run, "open_rows", lambda source, split, config: pytest.fail(f"{source} {config}")
    )
    options = {"dataset_name": "me/pairs", "dataset_config_name": "small"}

    with pytest.raises(pytest.fail.Exception, match="me/pairs small"):
        module.main({"model": toy_checkpoint, "output_dir": str(tmp_path), **options})
