"""Show placet on one live page, and let you decide there.

The board is a separate process and holds no state. It reads the journal and the folders, and
leaves intents as the command line does (`cli.decide`). It keeps a key in the state folder, which
signs login links and sessions.

Being able to reach the page must not be enough to decide. A request meets these checks, in order
(`auth.Guarded`): the Host must be the board's, against DNS rebinding; a form must come from the
board's page (Origin) and have the session's token, against CSRF; every page but the login page
needs a session, which a one-time link opens (`auth.Tokens`). No page runs a foreign script, loads
anything from outside, or can be framed. Templates escape every text of a model, a note or a
repository, and markdown is rendered without HTML and links (`markdown`). A decision carries the
digest that was on the screen, and is refused if the note has another one by then (`actions`).
"""
