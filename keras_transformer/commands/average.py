"""keras-transformer average: a model of several checkpoints of a run, Section 6.1."""

from pathlib import Path

from keras_transformer import model_folder
from keras_transformer.commands.options import add_workdir
from keras_transformer.config import ConfigError
from keras_transformer.tokenizer import Tokenizers
from keras_transformer.training.checkpoints import Checkpoints, average_weights, whole
from keras_transformer.training.variables import set_weights
from keras_transformer.training.workdir import Workdir
from keras_transformer_cli.options import add_file, add_folder, positive_integer

EPILOG = """\
The folder of the averaged model can be given to translate, score, evaluate and plot, and to python -m export; the run
itself stays as it is. Averaged are the weights of the steps, not the moving averages of a run with train.ema_decay."""


def add_arguments(parser):
    parser.epilog = EPILOG
    add_workdir(parser, "folder of a run, which need not be finished")
    parser.add_argument("--last", metavar="N", type=positive_integer, help="how many of the newest checkpoints (all)")
    add_file(parser, "--checkpoints", "these checkpoints instead", nargs="+")
    add_folder(parser, "--to", "the new folder of the averaged model", required=True)


def run(options) -> int:
    source, target = Workdir(options.workdir), Path(options.to)
    config, paths = source.load_config(), _chosen(source, options)
    if not model_folder.is_free(target):
        raise ValueError(f"--to must be a new or empty folder. Received: {target}.")
    _check_tokenizers(source.path, paths)
    tokenizers = Tokenizers.load(source.path)
    model = model_folder.new_model(config, tokenizers)
    set_weights(model, average_weights(paths))
    names = [path.name if path.parent == source.checkpoints else str(path) for path in paths]
    metadata = {"weights": f"average of {len(paths)}", "checkpoints": names}
    model_folder.write(target, config.to_dict(), tokenizers, model, metadata)
    print(f"{target}/model.keras: average of {', '.join(names)}")
    return 0


def _check_tokenizers(folder, paths):
    """Refuses checkpoints of runs with other pieces: their weights have no mean, even where these are equally many."""
    pieces = {path.name: path.read_bytes() for path in folder.glob("*.model")}
    for path in paths:
        checkpoints = path.resolve().parent
        found = {other.name: other.read_bytes() for other in checkpoints.parent.glob("*.model")}
        if found and found != pieces and checkpoints.name == "checkpoints":  # of a run, and no copy that lies elsewhere
            raise ValueError(f"Expected checkpoints of runs with the tokenizer of {folder}. Received: {path}.")


def _chosen(workdir, options):
    """The checkpoints that are averaged, all of them whole."""
    if options.checkpoints and options.last is not None:
        raise ConfigError("Expected --last or --checkpoints. Received: both.")
    paths = [Path(path) for path in options.checkpoints or ()] or Checkpoints(workdir.checkpoints).regular()
    paths = paths[-(options.last or len(paths)) :]
    if not paths or len(paths) < (options.last or 0):
        found = f"{len(paths)} in {workdir.checkpoints}; others can be named by --checkpoints"
        raise ValueError(f"Expected {options.last or 'some'} checkpoints, step-*.npz. Received: {found}.")
    if missing := [str(path) for path in paths if not path.exists()]:
        raise ValueError(f"Expected checkpoints. There is no {', '.join(missing)}.")
    damaged = []
    if len(whole(paths, damaged.append)) < len(paths):
        raise ValueError(f"Nothing is averaged. {' '.join(damaged)}")
    return paths
