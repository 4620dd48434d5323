"""Sporran's parts as those of other packages: ``langchain``, ``llama_index``, ``haystack``, ``datasets`` and ``ir_measures``.

Each module needs its package, and no other.
"""
