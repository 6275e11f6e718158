"""Work on several machines: one daemon decides, workers carry out what they are handed."""
