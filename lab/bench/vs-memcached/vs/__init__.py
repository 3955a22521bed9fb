"""Flowstone against memcached with extstore, one module a subject."""
