"""The public names of the package."""

import nextlevelbert
from nextlevelbert import public


def test_the_package_has_all_public_names():
    exported = {name: getattr(nextlevelbert, name) for name in public.__all__}

    for name, value in exported.items():
        assert value is getattr(public, name)
