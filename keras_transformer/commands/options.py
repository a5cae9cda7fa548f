"""Options that several commands have."""

WORKDIR = "runs/demo"  # of whoever names none


def add_workdir(parser, meaning="folder of a finished run", default=WORKDIR):
    parser.add_argument("--workdir", metavar="FOLDER", default=default, help=f"{meaning} ({WORKDIR})")


def add_decode(parser):
    parser.add_argument(
        "--set", metavar="decode.FIELD=VALUE", action="append", default=[], help="change the search; may be repeated"
    )


def load_translator(options, xla=None):
    """The `Translator` of --workdir, its search changed by --set; `xla` as `Translator` has it."""
    from keras_transformer.recipes import parse_decode
    from keras_transformer.translator import Translator

    return Translator.load(options.workdir, xla=xla, **parse_decode(options.set))
