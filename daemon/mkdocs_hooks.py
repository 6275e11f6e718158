"""Add the architecture to the guide, and write its `llms.txt`: all pages, for language models."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

DAEMON = Path(__file__).parent
_nav: list[Any] = []


def on_files(files: Any, config: Any) -> Any:
    """Take ARCHITECTURE.md, which stands next to the code, as a page."""
    source = str(DAEMON / "ARCHITECTURE.md")
    files.append(File.generated(config, "architecture.md", abs_src_path=source))
    return files


def on_nav(nav: Any, **_: Any) -> None:
    """Remember the order of the pages."""
    _nav[:] = nav.items


def on_post_build(config: Any) -> None:
    """Write `llms.txt`, and next to each page the markdown that it links to."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for item in _nav:
        lines += ["", f"## {item.title}", "", *_links(item.children or [item], site)]
    (site / "llms.txt").write_text("\n".join(lines) + "\n")


def _links(pages: list[Any], site: Path) -> Iterator[str]:
    for page in pages:
        shutil.copyfile(page.file.abs_src_path, site / page.file.src_uri)
        yield f"- [{page.title}]({page.file.src_uri}){first_sentence(page.markdown)}"


def first_sentence(markdown: str) -> str:
    """Return a colon and a page's first sentence without markup; empty if it has only lists."""
    found = re.search(r"(?m)^(?!\d+\. )[`*\[]*\w.*?(?:[.!?](?=\s)|:$)", markdown)
    if found is None:
        return ""
    return ": " + re.sub(r"\[([^\]]+)\]\([^)]*\)|[*`]", r"\1", found[0]).rstrip(":")
