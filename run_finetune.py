import sys

from nextlevelbert_command.command import run

if __name__ == "__main__":
    run(["finetune", *sys.argv[1:]])
