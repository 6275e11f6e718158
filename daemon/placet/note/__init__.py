"""Notes: frontmatter, markdown, hidden text, names. Pure: text in, values out."""
