"""The demo: the whole road from raw text to two encoders, on the Python reference that ships inside CPython."""
