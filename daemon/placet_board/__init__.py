"""The board: the whole of placet on one live page.

It is a process of its own, beside the daemon or started by it, and holds no state: it reads the
journal and the folders, and writes to the vault by the same gestures as the command line
(`cli.decide`). What it keeps is a key in the state folder, which signs login links and sessions.

Whoever can reach the page must not be able to decide. So, in the order in which a request meets it
(`auth.Guarded`): the Host must be one of ours, against DNS rebinding; a form must come from our own
page (Origin) and carry the session's token, against CSRF; everything but the login page needs a
session, which a one-time link opens (`auth.Tokens`). No page runs a script that is not ours, loads
anything from outside, or can be framed. Every text of a model, a note or a repository is escaped by
the templates, and markdown is rendered without HTML and links (`markdown`). A decision carries the
digest that was on the screen, and is refused if the note has another one by then (`actions`).
"""
