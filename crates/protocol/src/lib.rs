//! Sans-I/O parsers and writers for the memcached text and meta protocols
