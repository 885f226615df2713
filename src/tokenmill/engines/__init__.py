"""Engines: where and when units run. The same bytes come from each of them."""
