import functools
import itertools
import shlex
import time
import tomllib
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placet.plan.dangers import dangers
from placet.plan.globs import glob_matcher
from placet.plan.hosts import Host
from placet.plan.scope import Scope, ScopeProblems, scope_from, widened
from placet.plan.toml_text import scope_toml


def argv(command):
    return tuple(shlex.split(command))


def running(*commands, **rest):
    return Scope(run=tuple(argv(c) for c in commands), **rest)


# --- globs


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        (
            "src/a.py",
            ["src/a.py"],
            ["src/a_py", "src/A.py", "a.py", "x/src/a.py", "src/a.py/b", "src"],
        ),
        (
            "src/*.py",
            ["src/a.py", "src/.py", "src/.hidden.py"],
            ["src/b/a.py", "src/a.pyc", "src/a.py "],
        ),
        ("src/**", ["src/a", "src/b/c/d", "src/.env"], ["src", "srcs/a", "lib/src/a"]),
        ("src/", ["src/a", "src/b/c"], ["src", "srcs/a"]),
        ("**", ["a", "a/b/c", ".github/x"], []),
        ("**/test_*.py", ["test_a.py", "a/b/test_a.py"], ["a/test_a.txt", "xtest_a.py"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["a/b", "z", "b/a/z"]),
        ("a/**/**/z", ["a/z", "a/b/c/z"], ["z"]),
        ("?.md", ["a.md", "é.md", "..md"], ["ab.md", ".md", "a/.md"]),
        ("[a-c]x", ["ax", "cx", "[a-c]x"], ["dx", "Ax"]),
        ("[!a-c]x", ["dx", "!x"], ["ax"]),
        ("[^a]x", ["bx"], ["ax"]),
        ("[]]x", ["]x"], ["[x", "x"]),
        ("[a-]x", ["-x", "ax"], ["bx"]),
        ("app/[slug]/page.tsx", ["app/[slug]/page.tsx", "app/s/page.tsx"], ["app/slug/page.tsx"]),
        ("{{name}}/x", ["{{name}}/x"], ["name/x"]),
        ("*", ["a", ".a"], ["a/b"]),
    ],
)
def test_a_glob_matches_whole_paths_from_the_root(pattern, allowed, refused):
    scope = Scope(write=(pattern,))
    assert [p for p in allowed if not scope.allows_write(p)] == []
    assert [p for p in refused if scope.allows_write(p)] == []


def test_last_matching_glob_decides():
    scope = Scope(write=("src/**", "!src/secret/**", "src/secret/ok.py"))
    assert scope.allows_write("src/a")
    assert not scope.allows_write("src/secret/a")
    assert scope.allows_write("src/secret/ok.py")
    assert not Scope(write=("!src/**",)).allows_write("lib/a")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/src/a",
        "../a",
        "src/../a",
        "src/./a",
        "./src/a",
        "src//a",
        "src/",
        "src/a/",
        "src/a\0",
        "src/a\nb",
        "src\\a",
        "src/" + "a" * 256,
        "src/" + "a/" * 3000 + "a",
    ],
)
def test_unnormalised_path_is_never_allowed(path):
    assert not Scope(write=("**",)).allows_write(path)


def test_empty_scope_allows_nothing():
    assert not Scope().allows_write("a")
    assert not Scope().allows_run(["true"])
    assert not Scope(run=(("true",),)).allows_run([])


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "!",
        "/",
        "/etc/**",
        "!/etc",
        "../x",
        "a/../b",
        "a/..",
        "./a",
        "a//b",
        "a\\b",
        "a\0",
        "a\nb",
        "C:/x",
        "~/x",
        "~root/x",
        "src/**.py",
        "a**",
        "src/***",
        "src/*.{js,ts}",
        "[abc",
        "[",
        "[z-a]",
        "[[:alpha:]]",
        "a/[b/c]",
        "x" * 1025,
    ],
)
def test_nonsensical_glob_is_problem_with_hint(pattern):
    with pytest.raises(ScopeProblems) as caught:
        Scope(write=(pattern,))
    ((key, why),) = caught.value.problems
    assert key == "write"
    assert len(why) > 20
    with pytest.raises(ScopeProblems):
        scope_from({"write": [pattern]})


@functools.cache
def slow(pattern, path):
    """The plainest possible definition, exponential, of the same language without classes."""
    if not pattern:
        return not path
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        if not rest:
            return len(path) > 0
        return any(slow(rest, path[i:]) for i in range(len(path) + 1))
    return bool(path) and slow_segment(first, path[0]) and slow(rest, path[1:])


def slow_segment(pattern, name):
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(slow_segment(pattern[1:], name[i:]) for i in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and slow_segment(pattern[1:], name[1:])


_SEGMENT = st.text("ab*?", min_size=1, max_size=4).filter(lambda s: "**" not in s) | st.just("**")


@settings(max_examples=80)
@given(
    st.lists(_SEGMENT, min_size=1, max_size=4),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_glob_matching_agrees_with_reference(pattern, path):
    assert Scope(write=("/".join(pattern),)).allows_write("/".join(path)) == slow(
        tuple(pattern), tuple(path)
    )


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 250 + "b", "a" * 255),
        ("?*" * 250 + "b", "a" * 255),
        ("**/a/" * 150 + "b", "/".join("a" * 2000)),
        ("/".join(["**", "*a*a*a*b"] * 80), "/".join(["a" * 30] * 120)),
        ("[a-z]*" * 150 + "!", "a" * 255),
    ],
)
def test_glob_matching_never_backtracks_exponentially(pattern, path):
    scope = Scope(write=(pattern,))
    began = time.process_time()
    assert not scope.allows_write(path)
    # backtracking would take longer than the universe is old
    assert time.process_time() - began < 5


# --- commands


@pytest.mark.parametrize(
    ("entry", "command", "allowed"),
    [
        ("python -m pytest -q", "python -m pytest -q", True),
        ("python -m pytest -q", "python -m pytest -q tests/test_a.py -x", True),
        ("python -m pytest -q", "python -m pytest", False),
        ("python -m pytest -q", "python -m pytest -v -q", False),
        ("python -m pytest", "python3 -m pytest", False),
        ("python -m pytest", "/usr/bin/python -m pytest", False),
        ("python", "python -m pytest", True),
        ("ruff check .", "ruff check ./src", False),
        ("ruff check 'a b'", "ruff check 'a b' c", True),
        ("ruff check 'a b'", "ruff check a b", False),
    ],
)
def test_run_entry_must_be_exact_command_prefix(entry, command, allowed):
    assert running(entry).allows_run(argv(command)) is allowed


@pytest.mark.parametrize(
    "command",
    ["", "   ", "'' x", "a && b", "a | b", "a > f", "X=1 make", "echo 'open", "a\nb", "a\0"],
)
def test_nonsensical_command_is_a_problem(command):
    with pytest.raises(ScopeProblems) as caught:
        scope_from({"run": [command]})
    assert {key for key, _ in caught.value.problems} == {"run"}


FORBIDDEN = [
    # entry of the plan, what the model made of it
    ("python", "python -c 'import os'"),
    ("python", "python -Ic x"),
    ("python", "python -X dev -W error -c x"),
    ("python", "python -"),
    ("python3.11", "python3.11 -cprint(1)"),
    ("/usr/bin/python3", "/usr/bin/python3 -c x"),
    ("python -m", "python -m twine upload dist/x"),
    ("python", "python -mtwine upload dist/x"),
    ("python setup.py", "python setup.py upload"),
    ("bash", "bash -c x"),
    ("sh", "sh -ec x"),
    ("bash", "bash -o pipefail -c x"),
    ("bash", "bash --rcfile f -c x"),
    ("node", "node -e x"),
    ("node", "node --eval=x"),
    ("node", "node -pe x"),
    ("node", "node -r m --print x"),
    ("perl", "perl -ne x"),
    ("perl", "perl -0777pe x"),
    ("perl", "perl -I lib -e x"),
    ("ruby", "ruby -ne x"),
    ("php", "php -d a=b -r x"),
    ("deno", "deno eval x"),
    ("Rscript", "Rscript -e x"),
    ("lua5.4", "lua5.4 -e x"),
    ("git", "git push"),
    ("git", "git -C /home/x status"),
    ("git", "git -c core.pager=x log"),
    ("git", "git --git-dir=/x log"),
    ("git", "git --git-dir /x log"),
    ("git", "git --work-tree /x add ."),
    ("git", "git --no-pager push origin main"),
    ("git", "git config core.hooksPath x"),
    ("git", "git branch -D main"),
    ("git", "git branch -f main HEAD"),
    ("git", "git tag -d v1"),
    ("git", "git update-ref refs/heads/main x"),
    ("git", "git worktree add x"),
    ("git", "git bisect run sh x"),
    ("git", "git rebase -x 'sh x' main"),
    ("git", "git rebase --exec=x main"),
    ("git", "git grep -Ovim x"),
    ("git", "git fetch --upload-pack=x ."),
    ("git", "git diff --output=../x"),
    ("git log", "git log --output=x"),
    ("git push", "git push --force"),
    ("git push origin x", "git push origin x +main"),
    ("git push origin", "git push origin :main"),
    ("git push", "git push -f"),
    ("git -C sub", "git -C sub push"),
    ("rm", "rm -rf build"),
    ("rm", "rm -r -- build"),
    ("rm", "rm --rec build"),
    ("rm", "rm /etc/passwd"),
    ("rm -rf", "rm -rf /"),
    ("rm -rf", "rm -rf ."),
    ("rm -rf", "rm -rf build ../x"),
    ("rm -rf", "rm -rf ~"),
    ("rm -rf build", "rm -rf build .git"),
    ("rm -rf", "rm -rf --no-preserve-root x"),
    ("rm -rf", "rm -rf ./*"),
    ("env", "env sudo x"),
    ("env", "env A=1 python -c x"),
    ("env", "env -S 'sudo x'"),
    ("env", "env GIT_DIR=/x git log"),
    ("env", "env LD_PRELOAD=x ls"),
    ("timeout 60", "timeout 60 git push"),
    ("nice", "nice -n 5 bash -c x"),
    ("xargs", "xargs -n1 rm -rf /"),
    ("uv run", "uv run python -c x"),
    ("uv run", "uv run --with x twine upload y"),
    ("uv", "uv publish"),
    ("poetry run", "poetry run doas x"),
    ("npx", "npx node -e x"),
    ("env", "env " + "A=1 " * 300 + "sudo x"),
    ("find", "find . -exec rm {} +"),
    ("find .", "find . -name x -delete"),
    ("fd", "fd x -x sh"),
    ("npm", "npm publish"),
    ("cargo", "cargo publish"),
    ("twine", "twine upload d"),
    ("gem", "gem push x"),
    ("poetry", "poetry publish"),
    ("tar", "tar xf a --to-command=sh"),
    ("make", "make --eval=x"),
]


@pytest.mark.parametrize(("entry", "command"), FORBIDDEN)
def test_allowed_prefix_cannot_be_abused(entry, command):
    scope = running(entry)
    assert scope.allows_run(argv(command))
    assert scope.forbidden_run(argv(command))
    said = scope.refusal_run(argv(command))
    assert said["error_type"] == "outside_scope"
    assert said["allowed"] == [entry]


# --- the table


def test_scope_is_parsed_from_toml_table():
    assert scope_from(
        {
            "write": ["src/**"],
            "run": ["python -m pytest -q", "echo 'a b'"],
            "network": True,
            "shell": True,
            "budget_usd": Decimal("0.50"),
            "max_iterations": 10,
        }
    ) == Scope(
        ("src/**",),
        (("python", "-m", "pytest", "-q"), ("echo", "a b")),
        network=True,
        shell=True,
        budget_usd=Decimal("0.5"),
        max_iterations=10,
    )
    assert scope_from({}) == Scope()
    assert scope_from({"budget_usd": 0.1}).budget_usd == Decimal("0.1")
    assert scope_from({"budget_usd": 2}).budget_usd == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("write", "src/**"),
        ("write", [1]),
        ("write", {"a": 1}),
        ("run", "ls"),
        ("run", [["ls"]]),
        ("network", "false"),
        ("network", 0),
        ("shell", 1),
        ("budget_usd", "1"),
        ("budget_usd", True),
        ("budget_usd", -1),
        ("budget_usd", Decimal("NaN")),
        ("budget_usd", float("inf")),
        ("budget_usd", 10**9),
        pytest.param("budget_usd", 16**9_000, id="a number that cannot be printed"),
        ("budget_usd", Decimal("1E-9")),
        ("max_iterations", 0),
        ("max_iterations", 1.5),
        ("max_iterations", True),
        ("max_iterations", "3"),
        ("max_iterations", 10**12),
        ("delete", ["x"]),
        ("Write", ["x"]),
    ],
)
def test_invalid_scope_value_or_key_is_problem(key, value):
    with pytest.raises(ScopeProblems) as caught:
        scope_from({key: value})
    assert [k for k, _ in caught.value.problems] == [key]


LISTED = scope_from({"network": ["packages.example", "*.CDN.example", "packages.example:443"]})


def test_network_list_names_hosts():
    assert LISTED.hosts == (Host("packages.example"), Host("cdn.example", below=True))
    assert LISTED.network is False
    assert scope_from({"network": []}) == scope_from({"network": False}) == Scope()
    assert scope_from({"network": True}).hosts == ()


def test_unreadable_host_is_a_problem():
    with pytest.raises(ScopeProblems, match=r"network: 'https://a\.example' is not the name"):
        scope_from({"network": ["a.example", "https://a.example"]})


@pytest.mark.parametrize("scope", [Scope(), Scope(network=True), LISTED], ids=str)
def test_network_is_written_as_it_is_read(scope):
    assert scope_from(tomllib.loads(scope_toml(scope))) == scope


def test_wider_scope_joins_hosts_and_network_absorbs_them():
    more = scope_from({"network": ["files.example", "packages.example"]})
    assert widened(LISTED, more).hosts == (*LISTED.hosts, Host("files.example"))
    assert widened(LISTED, Scope(network=True)) == Scope(network=True)
    assert widened(Scope(network=True), more) == Scope(network=True)


def test_dangers_tell_what_hosts_receive():
    named = dangers(LISTED)
    assert len(named) == 1
    assert "send anything" in named[0]
    rented, foreign = dangers(scope_from({"network": ["*.github.io", "xn--bcher-kva.example"]}))[1:]
    assert "Anybody can rent a place at `*.github.io`" in rented
    assert "`xn--bcher-kva.example` is written in another script" in foreign


def test_all_scope_problems_are_reported_at_once():
    with pytest.raises(ScopeProblems) as caught:
        scope_from(
            {
                "write": ["/a", "../b", "ok"],
                "run": ["'"],
                "network": 1,
                "x": 1,
                "budget_usd": "",
                "max_iterations": "",
            }
        )
    assert sorted(k for k, _ in caught.value.problems) == [
        "budget_usd",
        "max_iterations",
        "network",
        "run",
        "write",
        "write",
        "x",
    ]
    with pytest.raises(ScopeProblems) as caught:
        Scope(write=("/a",), run=((),), budget_usd=Decimal(-1), max_iterations=0)
    assert [k for k, _ in caught.value.problems] == ["write", "run", "budget_usd", "max_iterations"]


def test_command_in_one_string_is_explained():
    scope = Scope(run=(("python3", "t.py"),))
    assert "give `python3`" in scope.refusal_run(["python3 t.py"])["error"]
    assert "begins with no command" in scope.refusal_run(["python2 t.py"])["error"]


def test_refusal_lists_what_is_allowed():
    scope = Scope(("src/**",), (("ls", "a b"),))
    assert scope.refusal_write("x")["allowed"] == ["src/**"]
    assert scope.refusal_write("x")["error_type"] == "outside_scope"
    assert "'x'" in scope.refusal_write("x")["error"]
    assert scope.refusal_run(["rm", "x"])["allowed"] == ["ls 'a b'"]
    assert len(scope.refusal_run(["rm", "x" * 10_000])["error"]) < 500
    assert "no files" in Scope().refusal_write("x")["error"]
    assert "no commands" in Scope().refusal_run(["x"])["error"]


_WORDS = st.lists(
    st.sampled_from(
        ["git", "push", "-C", "python", "-c", "-m", "env", "rm", "-r", "/", "sudo", "x", "--", "-"]
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=80)
@given(_WORDS, st.lists(_WORDS, max_size=3))
def test_extra_permission_never_forbids_more(command, entries):
    entries = [tuple(e) for e in entries]
    for few, more in itertools.pairwise([entries[:n] for n in range(len(entries) + 1)]):
        before, after = Scope(run=tuple(few)), Scope(run=tuple(more))
        assert after.allows_run(command) >= before.allows_run(command)
        assert (after.forbidden_run(command) is None) >= (before.forbidden_run(command) is None)
    assert Scope(run=(tuple(command),)).forbidden_run(command) is None


@pytest.mark.parametrize(
    ("glob", "told"),
    [
        ("[c-z]*/**", "almost anywhere"),
        (".[g]it*", "how git treats"),
        ("?gitattributes", "how git treats"),
        ("packages/x/.vscode/**", "your editor"),
        ("web/.env", "hold secrets"),
        ("web/.env.*", "hold secrets"),
        ("**/*.yml", "almost anywhere"),
        (".g?thub/*/ci.yml", "build server"),
        ("a/b/.npmrc", "your editor"),
        ("src/**", ""),
        ("src/*.py", ""),
        ("docs/*", ""),
        ("tests/test_a.py", ""),
        (".ssh/config", "hold secrets"),
    ],
)
def test_glob_dangers_depend_on_reach(glob: str, told: str) -> None:
    found = " ".join(dangers(Scope(write=(glob,))))
    assert (told in found) if told else not found


def test_network_warning_names_local_services_and_knowledge() -> None:
    said = " ".join(dangers(Scope(network=True)))
    assert all(
        word in said for word in ("services on this machine", "local network", "`Knowledge/`")
    )


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("src/x.py", True),
        ("src/secret/key.py", False),
        ("src/Secret/key.py", False),
        ("src/SECRET/deep/key.py", False),
        ("src/Generated.py", False),
        ("src/caf\u00e9/x", False),
        ("src/cafe\u0301/x", False),
        ("src/CAFE\u0301/x", False),
        ("src/secret/shown.py", True),
        ("src/Secret/Shown.py", False),
        ("SRC/x.py", False),
        ("src/[odd", True),
    ],
)
def test_scope_exclusions_ignore_case_and_unicode_form(path: str, allowed: bool) -> None:
    """On many file systems it is the same file; what is given is so as it is written."""
    scope = Scope(
        write=(
            "src/**",
            "!src/secret/**",
            "!src/generated.py",
            "!src/caf\u00e9/**",
            "!src/[Z-a]dd",
            "src/secret/shown.py",
        )
    )
    assert scope.allows_write(path) is allowed


def test_only_exact_path_approves_file_by_name() -> None:
    scope = Scope(
        write=(
            "a",
            "b/c.toml",
            "d*",
            "e/",
            "f?",
            "[g]",
            "app/[slug]/p",
            "x/**",
            "!b/c.toml",
            "h",
            "!h*",
            "h",
            "a",
        )
    )
    assert scope.by_name() == ("a", "h")


@pytest.mark.parametrize(
    ("write", "named"),
    [
        (("src/**", "!src/auth/**", "src/*/**"), ["!src/auth/**"]),
        (("src/**", "!src/auth/**", "src/auth/login.py"), ["!src/auth/**"]),
        (("src/**", "!src/auth/", "**/login.py"), ["!src/auth/"]),
        (("src/**", "!**/*.lock", "src/a.*"), ["!**/*.lock"]),
        (("src/**", "!src/auth/**"), []),
        (("!src/auth/**", "docs/**", "src/web/**"), []),
        (("src/**", "!src/auth/**", "src/*/**", "!src/auth/**"), []),
        (("src/**", "!src/*.lock", "src/*.py"), []),
        (("src/**", "!src/a/*", "src/a/b/c"), []),
    ],
)
def test_line_that_a_later_one_undoes_is_named(write: tuple[str, ...], named: list[str]) -> None:
    said = [one for one in dangers(Scope(write)) if "forbids less than it says" in one]
    assert [f"!{one.split('`')[3]}" for one in said] == named


@given(
    st.lists(st.sampled_from(["a", "b*", "*", "**", "?b", "[ab]"]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "b*", "*", "**", "?b", "[ab]"]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "b", "ab", "bb"]), min_size=1, max_size=4).map("/".join),
)
def test_globs_that_match_a_path_overlap(one: list[str], other: list[str], path: str) -> None:
    scope = Scope(("**", f"!{'/'.join(one)}", "/".join(other)))
    if all(glob_matcher("/".join(glob))(path) for glob in (one, other)):
        assert any("forbids less" in sentence for sentence in dangers(scope))
