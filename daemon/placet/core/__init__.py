"""The pure part: values in, values out. No I/O, no clock, no threads, no logging."""
