"""The demo: from raw text to answers and two encoders, on the Python reference that ships inside CPython."""
