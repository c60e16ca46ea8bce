import sys

from nextlevelbert.command import main

if __name__ == "__main__":
    status = main(["pretrain", *sys.argv[1:]])
    if status:
        sys.exit(status)
