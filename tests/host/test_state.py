from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from placet.errors import UserError
from placet.host.state import state_home, vault_state


def make_vault(tmp_path: Path, name: str = "My Notes") -> Path:
    vault = tmp_path / name
    vault.mkdir()
    return vault


@pytest.mark.parametrize(
    ("env", "home"),
    [
        ({"PLACET_STATE_HOME": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/placet"),
        ({"XDG_STATE_HOME": "b", "HOME": "/c"}, "/c/.local/state/placet"),
        ({"PLACET_STATE_HOME": "", "XDG_STATE_HOME": "", "HOME": "/c"}, "/c/.local/state/placet"),
    ],
)
def test_the_state_home_follows_the_environment(env, home):
    assert state_home(env) == Path(home)


@pytest.mark.parametrize("env", [{"PLACET_STATE_HOME": "rel", "HOME": "/c"}, {}, {"HOME": "rel"}])
def test_environment_without_home_is_user_error(env):
    with pytest.raises(UserError) as caught:
        state_home(env)
    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_vault_has_one_state_folder_by_any_path(tmp_path):
    vault = make_vault(tmp_path, "Grüße & Notes")
    (tmp_path / "link").symlink_to(vault)
    env = {"PLACET_STATE_HOME": str(tmp_path / "state")}
    state = vault_state(vault, env)
    assert vault_state(tmp_path / "link", env) == state
    assert vault_state(vault / ".." / vault.name, env) == state
    slug, _, digest = state.folder.name.rpartition("-")
    assert slug == "grue-notes"
    assert len(digest) == 8
    for place in (state.journal, state.worktrees, state.lock, state.intents):
        assert place.parent == state.folder


def test_two_vaults_of_one_name_have_two_folders(tmp_path):
    for parent in ("a", "b"):
        (tmp_path / parent / "notes").mkdir(parents=True)
    env = {"HOME": str(tmp_path)}
    assert (
        vault_state(tmp_path / "a/notes", env).folder
        != vault_state(tmp_path / "b/notes", env).folder
    )


@pytest.mark.parametrize("name", ["日本語", "...", "-"])
def test_vault_name_without_ascii_gets_state_folder(tmp_path, name):
    vault = make_vault(tmp_path, name)
    assert vault_state(vault, {"HOME": "/h"}).folder.name.startswith("vault-")


def test_state_folder_is_owner_only(tmp_path):
    state = vault_state(make_vault(tmp_path), {"HOME": str(tmp_path / "home")})
    state.ensure()
    place = state.worktrees
    while place != tmp_path:
        assert stat.S_IMODE(place.stat().st_mode) == 0o700, place
        place = place.parent
    state.folder.chmod(0o755)
    state.ensure()
    assert stat.S_IMODE(state.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("home", [".state", "a/b/c", ""])
def test_state_inside_vault_is_refused(tmp_path, home):
    vault = make_vault(tmp_path)
    state = vault_state(vault, {"PLACET_STATE_HOME": str(vault / home)})
    with pytest.raises(UserError, match="is in the vault"):
        state.ensure()
    assert list(vault.iterdir()) == []


def test_state_inside_vault_is_refused_through_link(tmp_path):
    vault = make_vault(tmp_path)
    (vault / "hidden").mkdir()
    (tmp_path / "elsewhere").symlink_to(vault / "hidden")
    with pytest.raises(UserError, match="is in the vault"):
        vault_state(vault, {"PLACET_STATE_HOME": str(tmp_path / "elsewhere")}).ensure()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("what", ["folder", "link"])
def test_a_state_folder_of_another_user_is_refused(tmp_path, what):
    state = vault_state(make_vault(tmp_path), {"PLACET_STATE_HOME": str(tmp_path / "state")})
    state.folder.parent.mkdir()
    if what == "folder":
        state.folder.mkdir()
    else:
        (tmp_path / "target").mkdir()
        state.folder.symlink_to(tmp_path / "target")
    os.lchown(state.folder, 1000, 1000)
    with pytest.raises(UserError, match="another user"):
        state.ensure()


def test_file_at_state_path_is_user_error(tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(UserError, match="cannot make"):
        vault_state(make_vault(tmp_path), {"PLACET_STATE_HOME": str(tmp_path / "state")}).ensure()
