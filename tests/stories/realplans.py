"""Hold twelve plans as models write them, for tests of the plan page."""

from __future__ import annotations

from typing import Any

Steps = tuple[tuple[str, str, str], ...]


def _plan(
    title: str, summary: str, steps: Steps, risks: tuple[str, ...] = (), **scope: Any
) -> dict[str, Any]:
    return {
        "title": title,
        "summary": summary,
        "steps": [
            {
                "title": name,
                "description": text,
                "tools": [
                    "read_file",
                    "grep",
                    *(["edit_file", "write_file"] if scope["write"] else []),
                ],
                "done_when": [done],
            }
            for name, text, done in steps
        ],
        "scope": scope,
        "risks": list(risks),
    }


PLANS: dict[str, dict[str, Any]] = {
    "Export people as CSV": _plan(
        "Add a CSV export to `app people`",
        "`app people --csv` prints the list as comma-separated values, so that a spreadsheet can "
        "open it. The table stays the default, and its output does not change.",
        (
            (
                "Write the export",
                "Add `as_csv(people)` to `src/app/export.py`. It uses the `csv` module, writes a "
                "header line, and quotes fields as RFC 4180 says.",
                "a name with a comma stays in one field",
            ),
            (
                "Add the option",
                "Add `--csv` to the command `people` in `src/app/cli.py`. Without it nothing "
                "changes.",
                "`app people --csv` prints CSV",
            ),
            (
                "Test it",
                "Cover commas, quotes, line breaks and names outside ASCII.",
                "`python -m pytest -q` passes",
            ),
            ("Document it", "One sentence below *Export* in the README.", "the README names it"),
        ),
        ("A script that reads the table is not affected. One that expects CSV may want a BOM.",),
        write=["src/app/export.py", "src/app/cli.py", "tests/test_export.py", "README.md"],
        run=["python -m pytest -q"],
    ),
    "Translate the checkout into German and French": _plan(
        "Translate the checkout into German and French",
        "The checkout reads its texts from message catalogs. German and French are added; English "
        "stays the fallback for a missing text.",
        (
            ("Extract the texts", "Every literal in `src/shop/checkout` becomes a key.", "none"),
            ("Write the catalogs", "One file for each language, sorted by key.", "all keys exist"),
            ("Choose the language", "From the account, else from `Accept-Language`.", "both work"),
            ("Check for gaps", "A test that fails for a key that one catalog lacks.", "it fails"),
            ("Show prices as people expect", "`1.299,00 €` in German.", "both formats are tested"),
        ),
        ("The French texts need a native reader before the release.",),
        write=[
            "src/shop/checkout/**",
            "packages/backoffice/translations/checkout/labels_*.json",
            "tests/checkout/test_translations.py",
        ],
        run=["python -m pytest -q tests/checkout", "ruff check src/shop"],
    ),
    "Review the password reset": _plan(
        "Review the password reset",
        "I read the reset flow and report what is wrong, with a line number for each finding. "
        "Nothing is changed.",
        (
            ("Read the flow", "From the form to the mail.", "each file was read"),
            ("Report", "Findings, the worst first.", "each has a line"),
        ),
        write=[],
        run=[],
    ),
    "Build with Python 3.14": _plan(
        "Move the build to Python 3.14",
        "The workflow, the image and the metadata say 3.14. Two dependencies need a newer release.",
        (
            ("Raise the version", "In the workflow and in `pyproject.toml`.", "both say 3.14"),
            ("Update dependencies", "`numpy` and `lxml` to releases for 3.14.", "they install"),
            ("Run the tests", "All of them.", "they pass"),
        ),
        ("`lxml` has no wheel for musl yet.",),
        write=[".github/workflows/test.yml", "pyproject.toml", "requirements*.txt"],
        run=["pip install -r requirements.txt", "python -m pytest -q"],
        network=True,
    ),
    "Clean up the repository": _plan(
        "Clean up the repository",
        "Remove dead code, unused assets and stale configuration anywhere in the repository.",
        (
            ("Find dead code", "With `vulture` and by reading.", "a list"),
            ("Delete it", "One commit for each folder.", "the tests pass"),
        ),
        ("Something that looks dead may be loaded by name.",),
        write=["**"],
        run=["bash", "python -m pytest -q"],
        shell=True,
        network=True,
    ),
    "Job queue: the test with two workers fails at random": _plan(
        "Fix the flaky test of the job queue",
        "`test_two_workers` waits for a fixed time. It waits for the event instead.",
        (
            ("Reproduce it", "Run it 200 times under load.", "it fails once"),
            ("Wait for the event", "Replace `sleep(0.1)` by `done.wait(5)`.", "200 runs pass"),
        ),
        write=["tests/test_queue.py"],
        run=["python -m pytest -q tests/test_queue.py"],
    ),
    "Rate limits for the public API": _plan(
        "Limit requests to the public API",
        "Each key gets 100 requests a minute, counted in Redis with a sliding window. A refused "
        "request gets 429 with `Retry-After`. Internal clients are not limited.",
        tuple(
            (title, f"{title}, as the design note in `docs/limits.md` says.", "its test passes")
            for title in (
                "Add the sliding window",
                "Add the middleware",
                "Read limits from settings",
                "Exempt internal clients",
                "Answer with Retry-After",
                "Count refused requests",
                "Write the tests",
                "Document the limits",
            )
        ),
        ("A clock that jumps may refuse requests for a minute.", "Redis may be down: then allow."),
        write=["src/api/limits/**", "src/api/settings.py", "tests/api/**", "docs/limits.md"],
        run=["python -m pytest -q tests/api"],
    ),
    "Sort the changelog": _plan(
        "Sort the changelog",
        "Entries in one order, the newest release first.",
        (("Sort the entries", "By release.", "each release stands once"),),
        write=["CHANGELOG.md"],
    ),
    "Replace the date library": _plan(
        "Replace `moment` by `Temporal`",
        "All dates go through `src/lib/dates.ts`, so only that file and its callers change. The "
        "bundle loses 290 kB.",
        (
            ("Wrap Temporal", "The same functions as today.", "the old tests pass"),
            ("Move the callers", "41 files; no logic changes.", "`grep moment` finds nothing"),
            ("Remove the dependency", "From `package.json` and the lock file.", "it is gone"),
        ),
        ("Time zones of old Safari versions.",),
        write=["src/lib/dates.ts", "src/**/*.ts", "package.json", "package-lock.json"],
        run=["npm test", "npm run build"],
    ),
    "Make the search ignore accents and capital letters in names of people and places": _plan(
        "Make the search ignore accents and capital letters in names of people and places",
        "`find` compares folded names, so that *Zurich* finds *Zürich*. The folded names are "
        "computed once when the list is loaded.",
        (
            ("Fold names", "With `unicodedata.normalize` and `casefold`.", "`zurich` finds it"),
            ("Compare them", "In `find` and in the completion.", "both find it"),
            ("Measure", "10,000 names in under 5 ms.", "the benchmark says so"),
        ),
        write=["src/app/search.py", "src/app/completion.py", "tests/test_search.py"],
        run=["python -m pytest -q", "python -m bench.search"],
    ),
    "Describe how releases are made": _plan(
        "Write down how releases are made",
        "A page in the handbook with the nine steps of a release, taken from the last three.",
        (
            ("Read the last releases", "Tags, notes and the chat.", "three were read"),
            ("Write the page", "`docs/handbook/release.md`.", "a new colleague can follow it"),
        ),
        write=["docs/handbook/release.md", "docs/handbook/index.md"],
    ),
    "Store uploads outside the database": _plan(
        "Store uploads in files instead of the database",
        "New uploads go to `var/uploads`, named by their SHA-256. Old ones are moved by a command "
        "that can be stopped and started again. Downloads work during the move.",
        (
            ("Write the store", "`put`, `get`, `delete`, by digest.", "its tests pass"),
            ("Use it for new uploads", "The column keeps the digest.", "a new upload is a file"),
            ("Read from both", "The file first, then the column.", "old ones can be downloaded"),
            ("Move old ones", "`manage.py move_uploads`, in batches of 100.", "it resumes"),
            ("Tell operators", "The upgrade note, with the space that it needs.", "it is there"),
        ),
        ("The move needs as much free space as the uploads take.", "A backup has two parts then."),
        write=["src/uploads/**", "manage.py", "tests/uploads/**", "docs/upgrade.md"],
        run=["python -m pytest -q tests/uploads", "python manage.py check"],
    ),
}
"""By the title of the request."""
