//! The network server: connections, configuration, statistics
