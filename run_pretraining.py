import sys

from nextlevelbert.command import main

if __name__ == "__main__":
    sys.exit(main(["pretrain", *sys.argv[1:]]))
