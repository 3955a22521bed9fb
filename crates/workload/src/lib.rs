//! Key, size and operation generators
