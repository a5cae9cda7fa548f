import asyncio
import weakref

import pytest

from export.serve import RequestError
from export.serve import versions as module
from export.serve.versions import State, Versions


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def versions(folder):
    versions = Versions("demo", folder, load, lambda line: versions.said.append(line), lambda: dict(versions.labels))
    versions.said, versions.labels = [], {}
    return versions


def load(path):
    text = (path / "model").read_text()
    if text == "broken":
        raise ValueError("is\nbroken")
    if text == "empty":
        return next(iter(()))
    return text


def write(folder, version, text):
    (folder / str(version)).mkdir(exist_ok=True)
    (folder / str(version) / "model").write_text(text)


def poll(versions):
    asyncio.run(asyncio.wait_for(versions.poll(), 10))


def served(versions, version=None, label=None):
    with versions.use(version, label) as loaded:
        return loaded


def test_the_newest_version_is_loaded_and_the_one_before_it_unloaded(versions, folder):
    write(folder, 9, "nine")
    poll(versions)
    assert served(versions) == served(versions, 9) == "nine"
    write(folder, 10, "ten")
    poll(versions)
    assert served(versions) == served(versions, 10) == "ten"
    assert versions.states() == [(10, State("AVAILABLE")), (9, State("END"))]
    assert versions.said[-2].startswith("version 10 is available") and versions.said[-1] == "version 9 is unloaded"


def test_the_versions_that_have_a_label_are_loaded_too(versions, folder):
    for version, text in ((1, "one"), (2, "two"), (3, "three")):
        write(folder, version, text)
    versions.labels = {"stable": 1}
    poll(versions)
    assert (served(versions), served(versions, label="stable"), served(versions, 1)) == ("three", "one", "one")
    assert versions.states() == [(3, State("AVAILABLE")), (1, State("AVAILABLE"))]


def test_a_label_moves_once_its_new_version_is_loaded(versions, folder):
    seen = []

    def watch(path):
        seen.append(served(versions, label="stable") if path.name == "2" else None)
        return load(path)

    versions._load = watch
    for version, text in ((1, "one"), (2, "two"), (3, "three")):
        write(folder, version, text)
    versions.labels = {"stable": 1}
    poll(versions)
    versions.labels = {"stable": 2}
    poll(versions)
    assert seen == [None, None, "one"]
    assert served(versions, label="stable") == "two" and versions.states(1) == [(1, State("END"))]


@pytest.mark.parametrize("text", ["broken", None])
def test_a_label_stays_where_it_is_when_its_new_version_cannot_be_loaded(versions, folder, text):
    write(folder, 1, "one")
    write(folder, 3, "three")
    versions.labels = {"stable": 1}
    poll(versions)
    if text:
        write(folder, 2, text)
    versions.labels = {"stable": 2}
    poll(versions)
    poll(versions)
    assert served(versions, label="stable") == "one" and served(versions) == "three"
    assert sum("is broken" in line for line in versions.said) == (text is not None)


def test_a_label_that_is_not_there_is_wrong_and_one_without_its_version_not_found(versions, folder):
    write(folder, 1, "one")
    versions.labels = {"stable": 7}
    poll(versions)
    with pytest.raises(RequestError, match="Unrecognized servable version label: canary") as caught:
        served(versions, label="canary")
    assert caught.value.status == 400
    with pytest.raises(RequestError, match=r"Servable not found for request: Specific\(demo, 7\)") as caught:
        served(versions, label="stable")
    assert caught.value.status == 404


def test_labels_that_cannot_be_read_are_those_of_before(versions, folder):
    write(folder, 1, "one")
    write(folder, 2, "two")
    versions.labels = {"stable": 1}
    poll(versions)
    versions.labels = ["no", "labels"]  # dict() of it is a ValueError
    poll(versions)
    poll(versions)
    assert served(versions, label="stable") == "one"
    assert sum("dictionary update" in line for line in versions.said) == 1


def test_what_is_no_version_is_not_looked_at(versions, folder):
    for name in ("assets", ".writing-4-1", "2.0", "-3", "007", "0", "²", str(2**63)):
        write(folder, name, "no")
    (folder / "99").write_text("a file")
    write(folder, 1, "one")
    poll(versions)
    assert served(versions) == "one"


def test_a_broken_version_is_survived_and_reported(versions, folder):
    write(folder, 1, "one")
    poll(versions)
    write(folder, 2, "broken")
    poll(versions)
    assert served(versions) == "one"
    assert versions.states() == [(2, State("END", "ValueError: is broken")), (1, State("AVAILABLE"))]
    poll(versions)
    assert sum("is broken" in line for line in versions.said) == 1  # it was not tried again


def test_whatever_is_raised_while_a_version_is_loaded_breaks_it_alone(versions, folder):
    write(folder, 1, "empty")
    poll(versions)
    assert versions.states() == [(1, State("END", "StopIteration:"))]
    write(folder, 2, "two")
    poll(versions)
    assert served(versions) == "two"


def test_whatever_happens_the_folder_is_looked_at_again(versions, folder, monkeypatch):
    looked, look = [], versions._look

    def fail_once():
        looked.append(0)
        if len(looked) == 1:
            raise RuntimeError("a\nbug")
        return look()

    async def watch():
        watching = asyncio.create_task(versions.watch())
        while not versions._loaded:
            await asyncio.sleep(0.01)
        watching.cancel()

    monkeypatch.setattr(versions, "_look", fail_once)
    monkeypatch.setattr(module, "POLL", 0.01)
    write(folder, 1, "one")
    asyncio.run(asyncio.wait_for(watch(), 10))
    assert versions.said[0] == "RuntimeError: a bug" and served(versions) == "one"


def test_a_broken_version_that_is_repaired_is_loaded(versions, folder):
    write(folder, 2, "broken")
    poll(versions)
    write(folder, 2, "two")
    poll(versions)
    assert served(versions) == "two"


def test_a_version_older_than_a_broken_one_is_loaded(versions, folder):
    write(folder, 1, "one")
    write(folder, 2, "broken")
    poll(versions)  # at once: nobody waits for the next look
    assert served(versions) == "one"


def test_removing_the_newest_version_brings_back_the_one_before(versions, folder):
    write(folder, 1, "one")
    write(folder, 2, "two")
    poll(versions)
    (folder / "2").rename(folder / "aside")
    poll(versions)
    assert served(versions) == "one"


def test_the_last_version_is_kept_when_its_folder_has_gone(versions, folder):
    write(folder, 1, "one")
    poll(versions)
    (folder / "1").rename(folder / "aside")
    poll(versions)
    assert served(versions) == "one"


def replace(folder, version, text):
    """Another export in the place of a version: every file is new."""
    if (folder / str(version)).exists():
        (folder / str(version)).rename(folder / f"old-{text}")
    write(folder, version, text)
    (folder / str(version) / "saved_model.pb").touch()


def test_a_version_that_was_removed_and_exported_again_is_loaded_again(versions, folder):
    replace(folder, 1, "one")
    poll(versions)
    replace(folder, 1, "again")
    poll(versions)
    poll(versions)
    assert served(versions) == "again" and sum(line.startswith("loading") for line in versions.said) == 2
    replace(folder, 1, "broken")
    poll(versions)
    poll(versions)
    assert served(versions) == "again" and versions.states() == [(1, State("AVAILABLE"))]
    assert sum("is broken" in line for line in versions.said) == 1
    (folder / "1" / "saved_model.pb").unlink()  # as while it is being removed
    poll(versions)
    assert served(versions) == "again"


def test_a_version_that_is_replaced_by_a_broken_one_goes_on(versions, folder):
    for version, text in ((1, "one"), (2, "two")):
        replace(folder, version, text)
    poll(versions)
    replace(folder, 2, "broken")
    for _ in range(3):
        poll(versions)
    assert served(versions) == "two" and versions.states(2) == [(2, State("AVAILABLE"))]
    assert sum("is broken" in line for line in versions.said) == 1


def test_the_memory_of_an_old_version_is_given_back(versions, folder):
    class Model:
        def __init__(self):
            self.itself = self  # a cycle, as in a SavedModel

    versions._load = lambda _: Model()
    write(folder, 1, "one")
    poll(versions)
    for version in (2, 2):  # another one, then the same one once more
        with versions.use() as old:
            old = weakref.ref(old)
        replace(folder, version, "two")
        poll(versions)
        assert old() is None


def test_a_version_is_unloaded_after_its_last_request(versions, folder):
    async def scenario():
        write(folder, 1, "one")
        await versions.poll()
        with versions.use() as loaded:
            write(folder, 2, "two")
            polling = asyncio.create_task(versions.poll())
            await asyncio.sleep(0.3)
            assert not polling.done() and loaded == "one" and served(versions) == "two"
            assert versions.states(1) == [(1, State("UNLOADING"))]
        await asyncio.wait_for(polling, 5)
        assert versions.states(1) == [(1, State("END"))]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [None, 3])
def test_a_version_that_is_not_there_is_not_found(versions, version):
    with pytest.raises(RequestError, match="of model demo are being looked for") as caught:
        served(versions, version)
    assert (caught.value.status, caught.value.retry_after) == (503, 5)
    with pytest.raises(RequestError, match="of model demo are being looked for"):
        versions.states(version)
    poll(versions)
    with pytest.raises(RequestError, match="Servable not found for request: (Latest|Specific)") as caught:
        served(versions, version)
    assert caught.value.status == 404
    with pytest.raises(RequestError, match="Could not find (any versions|version 3) of model demo") as caught:
        versions.states(version)
    assert caught.value.status == 404


def test_who_asks_while_the_first_version_is_loaded_is_told_to_come_back(versions, folder):
    seen = []

    def ask(path):
        with pytest.raises(RequestError, match="Version 1 of model demo is being loaded") as caught:
            served(versions)
        seen.append((caught.value.status, caught.value.retry_after))
        return load(path)

    versions._load = ask
    write(folder, 1, "one")
    poll(versions)
    assert seen == [(503, 5)] and served(versions) == "one"


def test_waiting_for_a_version_is_said_once(versions):
    poll(versions)
    poll(versions)
    assert len(versions.said) == 1 and versions.said[0].startswith("waiting for a version")


def test_two_things_that_are_wrong_are_said_once_each_and_again_when_they_come_back(versions):
    wrong = ["no", "labels"]
    for labels in (wrong, wrong, {}, wrong, wrong):
        versions.labels = labels
        poll(versions)
    assert [line[:10] for line in versions.said] == ["ValueError", "waiting fo", "ValueError"]


def test_who_names_the_folder_of_a_run_is_told_where_its_versions_are(versions, folder):
    (folder / "export").mkdir()
    poll(versions)
    assert versions.said[0].endswith(f"in {folder}; those of a run are in {folder / 'export'}")


def test_watching_goes_on_when_the_folder_comes_back(versions, folder, monkeypatch):
    monkeypatch.setattr("export.serve.versions.POLL", 0.01)

    async def scenario():
        (folder / "gone").mkdir()
        versions._folder = folder / "gone"
        (folder / "gone").rmdir()
        watching = asyncio.create_task(versions.watch())
        await asyncio.sleep(0.1)
        (folder / "gone").mkdir()
        write(folder / "gone", 1, "one")
        while not any("available" in line for line in versions.said):
            await asyncio.sleep(0.01)
        watching.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 10))
    assert "No such file" in versions.said[0]
