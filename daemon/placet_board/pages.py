"""The pages of the board that only show: numbers, the journal, a story, a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from placet.core.errors import UserError
from placet.journal.place import is_begun
from placet_board.journal_page import (
    csv_text,
    filters_of,
    journal_page,
    trace_page,
    wanted,
)
from placet_board.numbers import DAYS, VAULT_ITSELF, slice_of
from placet_board.pictures import picture
from placet_board.questions import GROUPS

if TYPE_CHECKING:
    from placet_board.app import Board


def _numbers(board: Board, request: Request) -> Response:
    part = slice_of(request.query_params)
    return board.page(
        request,
        "numbers.html",
        numbers=board.counted.numbers(board.site(request).state.journal, part),
        part=part,
        days=DAYS,
        groups=tuple(GROUPS),
        wanted={
            "agent": part.agent,
            "portal": VAULT_ITSELF if part.portal == "" else part.portal or "",
        },
    )


def _journal(board: Board, request: Request) -> Response:
    page = journal_page(board.site(request), filters_of(request.query_params))
    return board.page(request, "journal.html", **page)


def _journal_csv(board: Board, request: Request) -> Response:
    site = board.site(request)
    if not is_begun(site.state.journal):
        raise UserError("There is no journal yet.", "placet run", exit_code=3)
    asked = wanted(site, filters_of(request.query_params))
    return StreamingResponse(
        csv_text(site, asked),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": 'attachment; filename="journal.csv"'},
    )


def _trace(board: Board, request: Request) -> Response:
    page = trace_page(board.site(request), request.path_params["ident"])
    return board.page(request, "trace.html", **page)


def _picture(board: Board, request: Request) -> Response:
    where = request.path_params
    data = picture(board.site(request), where["ident"], where["generation"], where["number"])
    return Response(data, media_type="image/png")


PAGES: Mapping[str, Callable[[Board, Request], Response]] = {
    "/numbers": _numbers,
    "/journal": _journal,
    "/journal.csv": _journal_csv,
    "/journal/trace/{ident}": _trace,
    "/r/{ident}/pictures/{generation:int}/{number:int}": _picture,
}
