"""Options that several of the commands have, and what they name."""

from pathlib import Path

from keras_transformer.commands.lines import BUFFER_LINES
from keras_transformer.data.sources import files
from keras_transformer.recipes import parse_decode
from keras_transformer.training.workdir import Workdir
from keras_transformer.translator import Translator
from keras_transformer_cli.options import add_folder, positive_integer

WORKDIR = "runs/demo"  # where none is named


def add_workdir(parser, meaning="folder of a finished run", default=WORKDIR):
    add_folder(parser, "--workdir", f"{meaning} ({WORKDIR})", default=default)


def add_buffer_lines(parser, done):
    parser.add_argument(
        "--buffer-lines",
        metavar="N",
        type=positive_integer,
        help=f"lines that are sorted and {done} together (1 at a terminal, else {BUFFER_LINES})",
    )


def load_translator(options, xla=None):
    """The `Translator` of --workdir and --ensemble, its search changed by --set; `xla` as `Translator` has it."""
    return Translator.load(options.workdir, *options.ensemble, xla=xla, **parse_decode(options.set))


def files_of_runs(*workdirs) -> list:
    """The files of runs, which no output may overwrite; none of a `workdir` that is None."""
    return [path for workdir in workdirs if workdir for path in _files_of_run(workdir)]


def _files_of_run(workdir):
    run = Workdir(workdir)
    data = run.load_config().data
    corpora = (data.train, data.valid, data.test) if run.tells_its_training() else (data.test,)
    text = [path for corpus in corpora if corpus for path in files(corpus)]
    single = (run.config_path, run.model_path, run.metadata_path, run.log_path, run.path / "lock")
    folders = (run.path / "data", run.checkpoints, run.path / "export")
    single += (*map(Path, data.tokenizer_files), *run.path.glob("*.model"))
    return [*single, *(path for folder in folders for path in folder.rglob("*")), *text]
