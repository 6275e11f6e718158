"""Show placet on one live page, and let you decide there.

The board is a separate process without state. It reads the journal and the folders, and writes
intents as the command line does (`client.decisions`). A key in the state folder signs login links
and sessions.

Whoever can reach the page must not be able to decide. Each request passes these checks, in order
(`auth.Guarded`). The Host must be the board's, against DNS rebinding. A form must come from the
board's page (Origin) and have the session's token, against CSRF. Every page but the login page
needs a session, which a one-time link opens (`auth.Tokens`).

No page runs a foreign script, loads anything from outside, or can be framed. Templates escape every
text of a model, a note or a repository. Markdown is rendered without HTML and links (`markdown`). A
decision carries the digest that was on the screen. It is refused if the note has changed since
(`actions`).
"""
