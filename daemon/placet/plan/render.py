"""Write a plan as text that a person reads and edits.

Text from a model cannot become structure: no heading, no second scope, no list of tools, no literal
action, no comment, HTML, embed or callout. `render_plan` puts a backslash before the character that
would do it (CommonMark 2.4), `parse_plan` takes it away again, and the plan survives the round trip
exactly. Ordinary code blocks and inline code stay as they are.
"""

from __future__ import annotations

from placet.note.checkboxes import box
from placet.note.escape import escaped, escaped_comments, escaped_heading, escaped_text, fenced
from placet.plan.plan import Plan


def render_plan(plan: Plan) -> str:
    """Return the text of a plan, ending in a newline. `parse_plan` of it gives an equal plan.

    Tools are written in the scope only, not at steps.
    """
    from placet.plan.toml_text import actions_toml, scope_toml  # loads tomlkit

    blocks = [f"# {escaped_heading(plan.title)}", escaped_text(plan.summary), "## Steps"]
    for number, step in enumerate(plan.steps, 1):
        blocks.append(f"### {number}. {escaped_heading(step.title)}")
        blocks.append(box(ticked=not step.left_out))
        blocks.append(escaped_text(step.description))
        if step.done_when:
            blocks.append(
                "\n".join(["Done when:", *(f"- {escaped(line)}" for line in step.done_when)])
            )
        if step.actions:
            blocks.append(fenced(actions_toml([(a.tool, a.params) for a in step.actions]), "toml"))
    blocks += ["## Scope", fenced(scope_toml(plan.scope), "toml"), "## Risks"]
    blocks.append("\n".join(f"- {escaped(risk)}" for risk in plan.risks) or "None known.")
    for other in plan.others:
        blocks += [f"## {escaped_heading(other.title)}", escaped_text(other.text)]
    if plan.comments:
        blocks += ["## Review Comments", escaped_comments(plan.comments)]
    return "\n\n".join(block for block in blocks if block) + "\n"
