//! In-memory tables that map key hashes to flash locations
