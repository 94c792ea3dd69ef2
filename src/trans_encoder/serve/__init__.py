"""A server for one index: a page to look at, and an API that other programs know."""

from trans_encoder.serve.running import serve_index
