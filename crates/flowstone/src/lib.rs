//! A memcached-compatible cache that lives on flash
