"""Parse notes: frontmatter, markdown, hidden text, names. Pure functions on text."""
