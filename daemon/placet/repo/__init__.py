"""Git: what the rest of placet may know of it.

What each name is, its own module says; `runner` says how git is started.
"""
