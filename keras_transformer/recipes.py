"""Recipes: a run's configuration as a short TOML file that says what differs from a preset.

    preset = "tiny"                     # optional; base without it

    [data]
    train = ["train.en", "train.de"]    # paths are relative to the recipe
    vocab_size = 10000

    [train]
    steps = 8000

Precedence: dataclass default < preset < recipe < `--set section.field=value`.
"""

import dataclasses
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_transformer.config import PATHS, Config, ConfigError, DecodeConfig, TextSource, did_you_mean
from keras_transformer.presets import preset

KEYS = ("preset", *(field.name for field in dataclasses.fields(Config)))


def load_recipe(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """The configuration of the recipe at `path` (without one: the base preset), changed by `overrides`."""
    return resolve({} if path is None else read_recipe(Path(path)), parse_overrides(overrides))


def resolve(recipe: Mapping[str, Any], changes: Mapping[str, Any]) -> Config:
    """The configuration of a recipe, as `read_recipe` gives it, with `changes`, as `parse_overrides` gives them."""
    for key in (*recipe, *changes):
        if key not in KEYS:
            raise ConfigError(f"Unknown key `{key}` in Config.{did_you_mean(key, KEYS)}")
    name = changes.get("preset", recipe.get("preset", "base"))
    config = preset(name)
    for values in (recipe, absolute(changes, Path.cwd())):
        config = config.replace(**{key: value for key, value in values.items() if key != "preset"})
    return config


def read_recipe(path: Path) -> dict[str, Any]:
    """The tables of one TOML file, with its paths made absolute."""
    try:
        recipe = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # an editor may begin with a byte order mark
    except OSError as error:
        raise ConfigError(f"The recipe must be a readable TOML file. Received: {path} ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The recipe must be valid TOML. Received: {path}: {error}.") from error
    return absolute({name: _without_none(values) for name, values in recipe.items()}, path.resolve().parent)


def _without_none(values):
    """Turns "none" into None, for which TOML has no value; `--set` does the same."""
    if not isinstance(values, Mapping):
        return values
    return {name: None if isinstance(x, str) and x.lower() == "none" else x for name, x in values.items()}


def absolute(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`values` with its paths, which are relative to `folder`, made absolute; ~ is the home folder."""
    found = dict(values)
    if isinstance(data := values.get("data"), Mapping):
        found["data"] = {**data, **{name: locate(data[name], folder) for name in PATHS["data"] if name in data}}
    if isinstance(train := values.get("train"), Mapping) and (run := train.get("start_from")) and isinstance(run, str):
        found["train"] = {**train, "start_from": str(folder / os.path.expanduser(run))}
    return found


def locate(corpus: TextSource, folder: Path) -> TextSource:
    """`corpus` with its relative paths put below `folder`; names of built-in corpora stay as they are."""
    if isinstance(corpus, list | tuple):
        return tuple(locate(part, folder) for part in corpus)
    if not isinstance(corpus, str) or corpus in ("", "demo") or corpus.startswith("tfds:"):
        return corpus
    return str(folder / os.path.expanduser(corpus))


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """["train.steps=100", "preset=tiny"] -> {"train": {"steps": 100}, "preset": "tiny"}."""
    if isinstance(overrides, str):
        raise ConfigError(f"Expected a list of section.field=value. Received: {overrides!r}.")
    changes: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        section, dot, field = key.strip().partition(".")
        if not equals or not section or (dot and (not field or section == "preset")):
            raise ConfigError(f"--set takes section.field=value, or preset=NAME. Received: {override!r}.")
        if dot:
            changes.setdefault(section, {})[field] = parse_value(text)
        elif section == "preset":
            changes["preset"] = text.strip().strip("\"'")
        else:
            raise ConfigError(f"--set takes section.field=value, or preset=NAME. Received: {override!r}.")
    return changes


def parse_decode(overrides: Sequence[str]) -> dict[str, Any]:
    """["decode.alpha=1"] -> {"alpha": 1}; the search is all that can be changed of a finished model."""
    changes = parse_overrides(overrides)
    if others := sorted(changes.keys() - {"decode"}):
        raise ConfigError(f"--set takes decode.FIELD=VALUE for a finished model. Received: {', '.join(others)}.")
    DecodeConfig().replace(**changes.get("decode", {}))  # refuses what is no field of it
    return changes.get("decode", {})


def parse_value(text: str) -> Any:
    """Reads `none` as None, and TOML as its value; anything else is a string, so that quotes may be left out."""
    text = text.strip()
    if text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        if text.startswith("["):
            raise ConfigError(f"""A list must be written in TOML, '["a.en","a.de"]'. Received: {text!r}.""") from error
        return text
