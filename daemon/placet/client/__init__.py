"""Ask and decide: everything a person can do, without a terminal and without a page."""
