"""Makes nextlevelbert-hybrid: a table of token vectors beside word counts, fitted to novels in closed form.

    python -m benchmarks.studies.hold_out --data DATA --output_dir novels
    python -m benchmarks.studies.hybrid_checkpoint --train_file novels/train.jsonl --output_dir nextlevelbert-hybrid

The chunk encoder is the static one of --static, whitened, and hashed TF-IDF, centred. A document vector is the mean of
the chunk vectors. Nothing is trained. With --third all-MiniLM-L6-v2 a Transformer stands beside them (see
third_part.py). It has to read all of --train_file, so give it a few novels; 15 are nearly as good as all.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from nextlevelbert import load_chunk_encoder
from nextlevelbert.commands.fit import PLACES, STATIC_SHARE, hybrid_encoder, save_model
from nextlevelbert.data.rows import file_rows


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", type=Path, required=True, help="the novels to fit to, JSON lines with text")
    parser.add_argument("--static", default="checkpoints/nextlevelbert-static", help="whose table of token vectors")
    parser.add_argument("--places", type=int, default=PLACES, help="that tokens are hashed to")
    parser.add_argument("--static_share", type=float, default=STATIC_SHARE, help="squared weight of the static part")
    parser.add_argument("--third", help="a Transformer over the same vocabulary, as a third part: name or folder")
    parser.add_argument("--third_share", type=float, default=0.3, help="squared weight of the third part")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    texts = [str(row["text"]) for row in file_rows(args.train_file)]
    with tempfile.TemporaryDirectory() as folder:
        static = load_chunk_encoder(args.static)
        third = load_chunk_encoder(args.third) if args.third else None
        encoder = hybrid_encoder(
            static, texts, Path(folder), args.places, args.static_share, third=third, third_share=args.third_share
        )
        model = save_model(encoder, args.output_dir)
    size = sum(file.stat().st_size for file in args.output_dir.iterdir())
    print(f"{args.output_dir}: {size / 1e6:.1f} MB, vectors of {model.config.hidden_size} dimensions")


if __name__ == "__main__":
    main()
