"""What the sub-commands of `nextlevelbert` do, one file each; their options are in
`nextlevelbert_command.py`.
"""
