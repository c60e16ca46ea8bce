import sys

from nextlevelbert.command import main

if __name__ == "__main__":
    sys.exit(main(["finetune", *sys.argv[1:]]))
