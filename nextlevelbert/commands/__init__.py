"""The sub-commands of `nextlevelbert`, one file each; `nextlevelbert_command` has their options."""
