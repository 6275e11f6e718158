"""Collect texts that would act in a careless page."""

from __future__ import annotations

_SCRIPT = "alert(1)"
_HANDLERS = [
    "onload",
    "onerror",
    "onclick",
    "onfocus",
    "onmouseover",
    "ontoggle",
    "onanimationstart",
    "onpointerenter",
    "onbegin",
    "onwheel",
    "onscroll",
    "oninput",
    "onsubmit",
    "onpageshow",
    "onhashchange",
    "onmessage",
    "oncut",
    "onpaste",
]
_TAGS = [
    "script",
    "img",
    "svg",
    "iframe",
    "object",
    "embed",
    "video",
    "audio",
    "body",
    "details",
    "marquee",
    "math",
    "style",
    "link",
    "meta",
    "base",
    "form",
    "input",
    "button",
    "textarea",
    "select",
    "option",
    "template",
    "noscript",
    "title",
    "xmp",
    "plaintext",
    "frameset",
    "applet",
    "isindex",
    "keygen",
    "dialog",
    "portal",
    "slot",
    "custom-x",
    "picture",
    "source",
    "track",
    "area",
    "map",
    "table",
    "td",
]
_SCHEMES = [
    "javascript:",
    "JaVaScRiPt:",
    "java\tscript:",
    "java\nscript:",
    "\x01javascript:",
    "vbscript:",
    "data:text/html,",
    "data:text/html;base64,PHNjcmlwdD4=",
    "&#106;avascript:",
    "javascript&colon;",
    "//evil.example",
    "https://evil.example",
    "\\\\evil.example",
    "file:///etc/passwd",
    "obsidian://open",
    "blob:x",
    "view-source:x",
]
_BREAKS = ('">', "'>", "</textarea>", "</title>", "</script>", "</style>", "-->", "]]>", "</code></pre>",
           '" autofocus onfocus=alert(1) x="', "' onclick=alert(1) x='", "` onclick=alert(1)",
           "</option></select>", "</summary></details>", "<!--", "<![CDATA[", "<?xml?>", "<!doctype x>",
           "{{7*7}}", "{% raw %}", "${7*7}", "#{7*7}", "<%= 7*7 %>", "{{ config }}", "%3Cscript%3E",
           "&lt;script&gt;", "&#60;script&#62;", "\\u003cscript\\u003e", "\\x3cscript\\x3e", "+ADw-script+AD4-",
           "\uff1cscript\uff1e", "\x00<script>", "<scr\x00ipt>", "<scr<script>ipt>", "<<script>", "< script>", "<\nscript>",
           "<script/x>", "<svg/onload=alert(1)>", "<a href=x>x</a>", "<b>bold</b>", "<br/>", "<hr>")  # fmt: skip
_MARKDOWN = (
    "[x]({0})", "![x]({0})", "<{0}>", "[x]: {0}", "[x][y]\n\n[y]: {0}", "![x][y]\n\n[y]: {0}", "`{0}`",
    "```{0}\nx\n```", "~~~ {0}\nx\n~~~", "# {0}", "> [!{0}] x", "> [!note|{0}]\n> x", "- [ ] {0}", "| {0} |\n|-|\n| {0} |",
    "[^1]\n\n[^1]: {0}", "$$ {0} $$", "![[{0}]]", "[[{0}|x]]", "<details><summary>{0}", "{0}\n===", "    {0}", "1. {0}",
    "```diff\n+{0}\n-{0}\n@@ {0}\n```", "%%{0}%%", "{{.{0}}}", '[x](<{0}> "{0}")', '![](x "{0}")',
)  # fmt: skip
HIDDEN = (
    "\u202e\u2066\u200b\u2060\ufeff\u00ad\u061c\U000e0041\u200f\x1b\x07\x08\x9b\u2028\u3164\u180e"
)


def payloads() -> list[str]:
    """Return texts that would act, each different."""
    found = [
        f"<{tag} {one}={_SCRIPT}>"
        for tag in ("img src=x", "svg", "body", "input autofocus")
        for one in _HANDLERS
    ]
    found += [f"<{tag}>{_SCRIPT}</{tag}>" for tag in _TAGS]
    found += [f"<{tag} src=//evil.example href={_SCHEMES[0]}{_SCRIPT}>" for tag in _TAGS]
    found += [f"{scheme}{_SCRIPT}" for scheme in _SCHEMES]
    found += [f'<a href="{scheme}{_SCRIPT}">x</a>' for scheme in _SCHEMES]
    found += [f"{end}<script>{_SCRIPT}</script>" for end in _BREAKS]
    found += [f"{end}<img src=x onerror={_SCRIPT}>" for end in _BREAKS[:12]]
    found += [form.replace("{0}", f"javascript:{_SCRIPT}") for form in _MARKDOWN]
    found += [form.replace("{0}", f'"><img src=x onerror={_SCRIPT}>') for form in _MARKDOWN]
    found += [f"a{char}b<b>{char}" for char in HIDDEN]
    found += [
        "x" * 3_000 + "<script>",
        "\n\n<script>\n\n",
        "<script>" * 50,
        "\r\n\r\n<script>",
        "'\"<>&`",
    ]
    assert len(found) == len(set(found))
    return found
